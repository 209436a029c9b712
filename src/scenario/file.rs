//! A scenario as it is typed.

use serde::Deserialize;

use super::engine_args::EngineArgs;
use crate::cost::ConstantCost;
use crate::simulation::{Action, ActionKind};
use crate::units::SimTime;
use crate::workload::chat::ChatConfig;
use crate::workload::trace::TraceConfig;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioFile {
    pub name: String,
    pub seed: u64,
    pub model: String,
    pub gpu: String,
    pub engine: EngineArgs,
    pub workload: WorkloadArgs,
    pub cost: CostArgs,
    pub actions: Vec<ActionArgs>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkloadArgs {
    Trace(TraceConfig),
    Chat(ChatConfig),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CostArgs {
    Roofline,
    Constant(ConstantCost),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionArgs {
    pub at_s: f64,
    pub reset_prefix_cache: ResetPrefixCacheArgs,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetPrefixCacheArgs {
    #[serde(default)]
    pub reset_running_requests: bool,
}

impl ActionArgs {
    pub fn to_action(self) -> Action {
        let ResetPrefixCacheArgs { reset_running_requests } = self.reset_prefix_cache;
        Action {
            at: SimTime::from_secs_f64(self.at_s),
            kind: ActionKind::ResetPrefixCache { reset_running_requests },
        }
    }
}
