//! One conversation: its lengths and pauses, and its tokens so far.

use rand_chacha::ChaCha8Rng;

use super::ChatConfig;
use super::images::SessionImages;
use crate::prompt::{MmItem, TokenRuns};
use crate::units::SimTime;
use crate::workload::conversation::Conversation;
use crate::workload::token_ids::{first_own_token, placeholders};
use crate::workload::{Patience, rng};

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
    /// The images in it.
    pub images: Vec<MmItem>,
    pub answer_tokens: u32,
    /// With abandonment. A stream of its own, so that the same things are said with and without.
    patience_rng: Option<ChaCha8Rng>,
    /// With the answer to the message.
    pub patience: Option<Patience>,
    session_images: SessionImages,
    /// How often the user has sent the message again.
    num_retries: u32,
}

impl Session {
    /// Session `index` of `tenant` with its first message after what it begins with, if that fits
    /// the context.
    pub fn open(
        config: &ChatConfig,
        seed: u64,
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
            images: Vec::new(),
            answer_tokens: 0,
            patience_rng: config.abandonment.is_some().then(|| rng::stream(seed, "chat patience", index)),
            patience: None,
            session_images: SessionImages::new(seed, index, tenant),
            num_retries: 0,
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

    /// The user did not wait for the answer: the session to go on with, unless it ends here.
    pub fn give_up(mut self, config: &ChatConfig) -> Option<Self> {
        let max_retries = config.abandonment.as_ref().map_or(0, |abandonment| abandonment.max_retries);
        self.num_retries += 1;
        (self.num_retries <= max_retries).then_some(self)
    }

    /// Adds a message; false if with its answer it does not fit the context.
    fn write(&mut self, config: &ChatConfig) -> bool {
        let message_tokens = config.message_tokens.sample_count(&mut self.rng);
        self.answer_tokens = config.answer_tokens.sample_count(&mut self.rng);
        let tenant = &config.tenants[self.tenant as usize];
        let images =
            tenant.images.as_ref().map(|images| self.session_images.draw(images)).unwrap_or_default();
        let image_tokens: u64 = images.iter().map(|image| u64::from(image.length_tokens)).sum();
        let total = self.conversation.len_with(&[message_tokens, self.answer_tokens]) + image_tokens;
        if total > u64::from(config.max_context_tokens) {
            return false;
        }
        for mut image in images {
            image.offset_tokens = self.conversation.prompt().len();
            self.conversation.quote(&placeholders(image.length_tokens));
            self.images.push(image);
        }
        self.conversation.say(message_tokens);
        self.num_retries = 0;
        if let (Some(abandonment), Some(rng)) = (&config.abandonment, &mut self.patience_rng) {
            let lasts = abandonment.patience_s.sample_time(rng);
            self.patience = Some(Patience { lasts, waits_for: abandonment.waits_for });
        }
        true
    }
}
