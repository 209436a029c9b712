//! What can be set about generated agents.

use serde::{Deserialize, Serialize};

use crate::workload::distribution::MAX_LENGTH_TOKENS;
use crate::workload::generator::Generator;
use crate::workload::{ArrivalProcess, ConfigError, Distribution, require};

/// Agents that call tools: each works on a task by itself, without a user between its calls of the
/// model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentsConfig {
    /// New tasks in a second; none where the arrival process sets its times.
    #[serde(default)]
    pub sessions_per_s: Option<f64>,
    #[serde(default)]
    pub arrival_process: ArrivalProcess,
    /// No session starts at or after this time; those under way go on to their end.
    #[serde(default)]
    pub duration_s: Option<f64>,
    #[serde(default)]
    pub num_sessions: Option<u64>,
    /// So many agents at a time, their sub-agents not counted: the next starts when one ends.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    /// All prompts begin with the system prompt and the definitions of the tools.
    pub system_prompt_tokens: u32,
    #[serde(default)]
    pub tool_definitions_tokens: u32,
    /// What the agent is asked, with the context that it is given.
    pub task_tokens: Distribution,
    /// How often a task calls the model, if `max_context_tokens` does not end it before.
    pub turns: Distribution,
    /// What the model answers: text, and the call of a tool.
    pub output_tokens: Distribution,
    pub tool_result_tokens: Distribution,
    /// From the end of an answer to the next prompt, which has the tool's result.
    pub tool_latency_s: Distribution,
    /// No prompt and its answer are longer than this. An agent ends when its next would be, unless
    /// it compacts its context.
    pub max_context_tokens: u32,
    #[serde(default)]
    pub subagents: Option<SubagentsConfig>,
    #[serde(default)]
    pub compaction: Option<CompactionConfig>,
}

/// Agents that start others, wait for all of them, and go on with their last answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubagentsConfig {
    /// The share of answers that start sub-agents in place of calling a tool.
    pub share: f64,
    /// How many start together.
    pub branches: Distribution,
    /// They go on from the whole context of the agent; if not, from the system prompt and the
    /// tools.
    #[serde(default = "yes")]
    pub share_context: bool,
    pub task_tokens: Distribution,
    /// Calls of the model by each; its answers, tools and their times are as the agent's.
    pub turns: Distribution,
}

const fn yes() -> bool {
    true
}

/// When the context is full, the model is asked for a summary of it, and the agent goes on from
/// system prompt, tools and summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionConfig {
    /// For which there is always room left.
    pub summary_tokens: Distribution,
}

impl AgentsConfig {
    /// What an agent's context may grow to.
    pub(super) fn room_tokens(&self) -> u64 {
        let summary =
            self.compaction.as_ref().map_or(0, |compaction| compaction.summary_tokens.count_bounds().1);
        u64::from(self.max_context_tokens).saturating_sub(summary.into())
    }

    /// What all contexts begin with.
    pub(super) fn beginning_tokens(&self) -> u64 {
        u64::from(self.system_prompt_tokens) + u64::from(self.tool_definitions_tokens)
    }

    /// Checks the values and how they fit together; the error names the path of the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.starts().validate()?;
        for (name, counts) in [
            ("task_tokens", &self.task_tokens),
            ("turns", &self.turns),
            ("output_tokens", &self.output_tokens),
            ("tool_result_tokens", &self.tool_result_tokens),
        ] {
            counts.validate_count().map_err(|error| error.within(name))?;
        }
        self.tool_latency_s.validate_time().map_err(|error| error.within("tool_latency_s"))?;
        if let Some(subagents) = &self.subagents {
            subagents.validate().map_err(|error| error.within("subagents"))?;
        }
        if let Some(CompactionConfig { summary_tokens }) = &self.compaction {
            let error = |error: ConfigError| error.within("compaction.summary_tokens");
            summary_tokens.validate_count().map_err(error)?;
            let most = summary_tokens.count_bounds().1;
            let expected = format!("a `max` below `max_context_tokens`, {}", self.max_context_tokens);
            let field = "compaction.summary_tokens";
            require(most < self.max_context_tokens, field, format!("up to {most}"), expected)?;
        }
        let valid = (1..=MAX_LENGTH_TOKENS).contains(&self.max_context_tokens);
        let expected = format!("a whole number from 1 to {MAX_LENGTH_TOKENS}");
        require(valid, "max_context_tokens", self.max_context_tokens, expected)?;
        let first =
            u64::from(self.task_tokens.count_bounds().0) + u64::from(self.output_tokens.count_bounds().0);
        let needed = self.beginning_tokens() + first;
        let expected = format!("at least {needed}, for what prompts begin with, a task and an answer");
        require(needed <= self.room_tokens(), "max_context_tokens", self.room_tokens(), expected)
    }
}

impl SubagentsConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        require((0.0..=1.0).contains(&self.share), "share", self.share, "a number from 0 to 1")?;
        for (name, counts) in
            [("branches", &self.branches), ("task_tokens", &self.task_tokens), ("turns", &self.turns)]
        {
            counts.validate_count().map_err(|error| error.within(name))?;
        }
        let most = self.branches.count_bounds().1;
        require(most <= 1_000, "branches", format!("up to {most}"), "a `max` of at most 1000")
    }
}
