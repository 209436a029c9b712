//! What a session has said so far.

use crate::prompt::TokenRuns;

/// A prompt that grows. Whatever the session says has its next token ids, so all of that is one run
/// as long as nothing else comes in between.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    prompt: TokenRuns,
    next_token: u64,
}

impl Conversation {
    /// After a beginning that others may share; what is said has ids from `next_token` on.
    pub fn new(beginning: TokenRuns, next_token: u64) -> Self {
        Self { prompt: beginning, next_token }
    }

    pub fn prompt(&self) -> &TokenRuns {
        &self.prompt
    }

    /// The length if so many tokens more are said.
    pub fn len_with(&self, more_tokens: &[u32]) -> u64 {
        u64::from(self.prompt.len()) + more_tokens.iter().map(|&tokens| u64::from(tokens)).sum::<u64>()
    }

    /// Adds what somebody of the session says: a message, an answer, the result of a tool.
    pub fn say(&mut self, tokens: u32) {
        self.prompt.push_run(self.next_token, tokens);
        self.next_token += u64::from(tokens);
    }

    /// Adds what was said elsewhere.
    pub fn quote(&mut self, text: &TokenRuns) {
        self.prompt.extend(text);
    }

    /// The same text as [`Self::say`] would add now.
    pub fn answer(&self, tokens: u32) -> TokenRuns {
        TokenRuns::from_run(self.next_token, tokens)
    }
}
