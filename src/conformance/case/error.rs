//! What can be wrong with a case, and with running it.

use thiserror::Error;

use crate::engine::EngineConfigError;

/// Steps in a row that schedule no token or preempt somebody and end without an output. No wait
/// of a connector takes so long; a request that can never run, or that preempts itself again and
/// again, does.
pub(in crate::conformance) const MAX_FRUITLESS_STEPS: u64 = 1000;

#[derive(Debug, Error)]
pub enum CaseError {
    #[error("line {line}, column {column}: {message}")]
    Json { line: usize, column: usize, message: String },
    #[error("engine.{0}")]
    Engine(#[from] EngineConfigError),
    #[error("request {id:?}: {problem}")]
    Request { id: String, problem: String },
    #[error("action {index}: step {step} is too large; give at most 2^53")]
    ActionStep { index: usize, step: u64 },
    #[error("the requests have {count} {what} together; give at most {most}")]
    TooLarge { what: &'static str, count: u64, most: u64 },
    /// The engine would go on for ever, or for so long that nobody would read the log.
    #[error(
        "step {step}: {MAX_FRUITLESS_STEPS} steps brought no token; unfinished: {}; \
         raise num_gpu_blocks or max_num_batched_tokens, shorten the prompts or the waits",
        unfinished.join(", ")
    )]
    Stuck { step: u64, unfinished: Vec<String> },
}

impl From<serde_json::Error> for CaseError {
    fn from(error: serde_json::Error) -> Self {
        // The message ends with the position, which has its own fields here.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        Self::Json { line: error.line(), column: error.column(), message }
    }
}
