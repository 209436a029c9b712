//! One conversation: its lengths and pauses, and its tokens so far.

use rand_chacha::ChaCha8Rng;

use super::ChatConfig;
use crate::prompt::TokenRuns;
use crate::units::SimTime;

/// Token ids of sessions lie from here upwards, those of system prompts below.
///
/// A session takes its ids one after the other, message or answer, and is never longer than
/// `max_context_tokens`; so session `i` has the ids from `i * max_context_tokens` to itself, and a
/// whole conversation is two runs.
const FIRST_SESSION_TOKEN: u64 = 1 << 62;

/// System prompts are shorter than this.
const TENANT_TOKENS: u64 = 1 << 32;

/// A session at the point where it has a message to send or waits for the answer to it.
pub(super) struct Session {
    pub index: u64,
    pub tenant: u32,
    /// Of the message, from 0.
    pub turn: u32,
    num_turns: u32,
    /// Nobody else draws from it, and always in the same order: what is said does not depend on
    /// when the server answers.
    rng: ChaCha8Rng,
    /// The conversation up to and including the message.
    pub prompt: TokenRuns,
    pub answer_tokens: u32,
    next_token: u64,
}

impl Session {
    /// Session `index` of `tenant` with its first message, if that fits the context.
    pub fn open(config: &ChatConfig, index: u64, tenant: u32, mut rng: ChaCha8Rng) -> Option<Self> {
        let system_prompt_tokens = config.tenants[tenant as usize].system_prompt_tokens;
        let first_token = config.system_prompt_of(tenant) as u64 * TENANT_TOKENS;
        let num_turns = config.turns.sample_count(&mut rng);
        let mut session = Self {
            index,
            tenant,
            turn: 0,
            num_turns,
            rng,
            prompt: TokenRuns::from_run(first_token, system_prompt_tokens),
            answer_tokens: 0,
            next_token: FIRST_SESSION_TOKEN + index * u64::from(config.max_context_tokens),
        };
        session.write(config).then_some(session)
    }

    /// What the model answers to the message.
    pub fn answer(&self) -> TokenRuns {
        TokenRuns::from_run(self.next_token, self.answer_tokens)
    }

    /// Adds the answer and the next message, unless the session ends here. Also tells how long the
    /// user thinks in between.
    pub fn go_on(mut self, config: &ChatConfig) -> Option<(SimTime, Self)> {
        self.turn += 1;
        if self.turn == self.num_turns {
            return None;
        }
        self.say(self.answer_tokens);
        let think_time = config.think_time_s.sample_time(&mut self.rng);
        self.write(config).then_some((think_time, self))
    }

    /// Adds a message; false if with its answer it does not fit the context.
    fn write(&mut self, config: &ChatConfig) -> bool {
        let message_tokens = config.message_tokens.sample_count(&mut self.rng);
        self.answer_tokens = config.answer_tokens.sample_count(&mut self.rng);
        let total =
            [self.prompt.len(), message_tokens, self.answer_tokens].map(u64::from).iter().sum::<u64>();
        if total > u64::from(config.max_context_tokens) {
            return false;
        }
        self.say(message_tokens);
        true
    }

    fn say(&mut self, tokens: u32) {
        self.prompt.push_run(self.next_token, tokens);
        self.next_token += u64::from(tokens);
    }
}
