//! One conversation: its lengths and pauses, and its tokens so far.

use rand_chacha::ChaCha8Rng;

use super::ChatConfig;
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::conversation::Conversation;
use crate::workload::token_ids::first_own_token;

/// A session at the point where it has a message to send or waits for the answer to it.
pub(super) struct Session {
    pub tenant: u32,
    /// Of the message, from 0.
    pub turn: u32,
    num_turns: u32,
    /// Nobody else draws from it, and always in the same order: what is said does not depend on
    /// when the server answers.
    rng: ChaCha8Rng,
    /// Up to and including the message.
    pub conversation: Conversation,
    pub answer_tokens: u32,
}

impl Session {
    /// Session `index` of `tenant` with its first message after what it begins with, if that fits
    /// the context.
    pub fn open(
        config: &ChatConfig,
        index: u64,
        tenant: u32,
        beginning: TokenRuns,
        mut rng: ChaCha8Rng,
    ) -> Option<Self> {
        let num_turns = config.turns.sample_count(&mut rng);
        let mut session = Self {
            tenant,
            turn: 0,
            num_turns,
            rng,
            // No session says more than it may be long.
            conversation: Conversation::new(beginning, first_own_token(index, config.max_context_tokens)),
            answer_tokens: 0,
        };
        session.write(config).then_some(session)
    }

    /// What the model answers to the message.
    pub fn answer(&self) -> TokenRuns {
        self.conversation.answer(self.answer_tokens)
    }

    /// Adds the answer and the next message, unless the session ends here. Also tells how long the
    /// user thinks in between.
    pub fn go_on(mut self, config: &ChatConfig) -> Option<(SimTime, Self)> {
        self.turn += 1;
        if self.turn == self.num_turns {
            return None;
        }
        self.conversation.say(self.answer_tokens);
        let think_time = config.think_time_s.sample_time(&mut self.rng);
        self.write(config).then_some((think_time, self))
    }

    /// Adds a message; false if with its answer it does not fit the context.
    fn write(&mut self, config: &ChatConfig) -> bool {
        let message_tokens = config.message_tokens.sample_count(&mut self.rng);
        self.answer_tokens = config.answer_tokens.sample_count(&mut self.rng);
        let total = self.conversation.len_with(&[message_tokens, self.answer_tokens]);
        if total > u64::from(config.max_context_tokens) {
            return false;
        }
        self.conversation.say(message_tokens);
        true
    }
}
