//! What a step costs beside its kernels.
//!
//! On the GPU the kernels of a step take `gpu_scale` times what each takes alone, and
//! `prefill_scale` times in steps of so many tokens that arithmetic limits them and clocks drop;
//! each layer adds `gpu_layer_us` of gaps between kernels, and between two steps the GPU waits
//! `gpu_step_us` for inputs, launch and sampled tokens. On the CPU a step takes `host_step_us` and
//! `host_request_us` for each of its requests; asynchronous scheduling hides that behind the GPU.
//! In front of the engine a request takes `frontend_us`, `frontend_token_us` for each token of its
//! prompt and `frontend_user_us` for each user whose tokens the front end streams: HTTP,
//! tokenising, messages between processes, detokenising.

use serde::{Deserialize, Serialize};

/// Microseconds, but for the scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCoefficients {
    /// All kernels together against the sum of each alone.
    pub gpu_scale: f64,
    /// The same in steps of many tokens.
    #[serde(default = "one")]
    pub prefill_scale: f64,
    /// Gaps between the kernels of one layer.
    #[serde(default)]
    pub gpu_layer_us: f64,
    /// GPU time between the kernels of two steps: input copies, launch, sampled tokens.
    pub gpu_step_us: f64,
    /// Scheduling and bookkeeping, which asynchronous scheduling hides.
    pub host_step_us: f64,
    pub host_request_us: f64,
    /// From the client to the engine's queue and back, for a client on the other side of HTTP.
    #[serde(default)]
    pub frontend_us: f64,
    #[serde(default)]
    pub frontend_token_us: f64,
    #[serde(default)]
    pub frontend_user_us: f64,
}

const fn one() -> f64 {
    1.0
}

/// Half of the way from one scale to the other: about where bf16 products become bound by
/// arithmetic on data centre GPUs.
const PREFILL_TOKENS: f64 = 512.0;

#[derive(Clone, Debug)]
pub(super) struct Host {
    fit: HostCoefficients,
    num_layers: f64,
}

/// Microseconds to the nearest nanosecond.
pub(super) fn to_ns(time_us: f64) -> u64 {
    (time_us * 1e3).round() as u64
}

impl HostCoefficients {
    /// What a client waits for beside the engine, of `num_users` at the same time.
    pub fn frontend_ns(&self, num_prompt_tokens: u32, num_users: u32) -> u64 {
        let tokens = self.frontend_token_us * f64::from(num_prompt_tokens);
        to_ns(self.frontend_us + tokens + self.frontend_user_us * f64::from(num_users))
    }
}

impl Host {
    pub fn new(fit: HostCoefficients, num_layers: u32) -> Self {
        Self { fit, num_layers: f64::from(num_layers) }
    }

    /// Kernel time as it is within a step of so many tokens: neighbours compete for clocks and
    /// bandwidth.
    pub fn kernels_ns(&self, time_us: f64, num_tokens: u32) -> u64 {
        let tokens = f64::from(num_tokens);
        let share = tokens / (tokens + PREFILL_TOKENS);
        to_ns(time_us * (self.fit.gpu_scale + (self.fit.prefill_scale - self.fit.gpu_scale) * share))
    }

    /// GPU time of a step outside kernels.
    pub fn gpu_step_ns(&self) -> u64 {
        to_ns(self.fit.gpu_step_us + self.fit.gpu_layer_us * self.num_layers)
    }

    /// Scheduling, input preparation and output handling on the CPU.
    pub fn host_ns(&self, num_requests: u32) -> u64 {
        to_ns(self.fit.host_step_us + self.fit.host_request_us * f64::from(num_requests))
    }
}
