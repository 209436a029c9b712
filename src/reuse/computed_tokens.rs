//! Which tokens of a request a server has computed when it has answered.

use crate::prompt::TokenRuns;
use crate::workload::trace::{FIRST_UNKNOWN_TOKEN, TraceRequest, TraceTokens};

/// Makes the sequences of requests, one after the other.
#[derive(Debug)]
pub struct ComputedTokens {
    next_unknown_token: u64,
}

impl Default for ComputedTokens {
    fn default() -> Self {
        Self { next_unknown_token: FIRST_UNKNOWN_TOKEN }
    }
}

impl ComputedTokens {
    /// The prompt and the answer up to its last token, which is sampled but never computed. Tokens of
    /// an answer of which only the length is known are nobody else's. `None` if of the prompt too only
    /// the length is known.
    pub fn of(&mut self, request: &TraceRequest) -> Option<TokenRuns> {
        let TraceTokens::Known(prompt) = &request.prompt else { return None };
        let mut tokens = prompt.clone();
        let answer_tokens = request.output.len().saturating_sub(1);
        match &request.output {
            TraceTokens::Known(answer) => {
                answer.slice(0, answer_tokens).for_each(|run| tokens.push_run(run.start, run.len));
            }
            TraceTokens::Length(_) => {
                tokens.push_run(self.next_unknown_token, answer_tokens);
                // A gap, so that no two of them make one run.
                self.next_unknown_token += u64::from(answer_tokens) + 1;
            }
        }
        Some(tokens)
    }
}
