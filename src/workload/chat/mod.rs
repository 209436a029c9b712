//! Generated chat traffic: sessions of several turns, closed-loop.
//!
//! The next prompt of a session is the whole conversation so far and a new message, and it arrives
//! a think time after the last answer ended. Sessions of a tenant share its system prompt, one of its
//! sets of few-shot examples, and its popular images; nothing else is shared.

mod config;
mod images;
mod session;
#[cfg(test)]
mod tests;

use rand::RngExt;

pub use config::{AbandonmentConfig, ChatConfig, FewShotConfig, TenantConfig};
pub use images::{ImagePoolConfig, ImagesConfig};
use session::Session;

use super::distribution::pick_weighted;
use super::generator::{Generator, StartsMut};
use super::recording::Recording;
use super::sessions::{Next, Sessions, Traffic};
use super::starts::{Starts, StartsConfig};
use super::token_ids::shared_text;
use super::zipf::Zipf;
use super::{ConfigError, RequestSpec, Workload, WorkloadError, rng};
use crate::prompt::{LoraRequest, PromptEmbeds, PromptExtras, TokenRuns};
use crate::units::SimTime;

impl Generator for ChatConfig {
    fn starts(&self) -> StartsConfig<'_> {
        StartsConfig {
            rate_per_s: self.sessions_per_s,
            rate_field: "sessions_per_s",
            process: &self.arrival_process,
            duration_s: self.duration_s,
            count: self.num_sessions,
            count_field: "num_sessions",
            max_concurrency: self.max_concurrency,
            stream: "chat session arrivals",
        }
    }

    fn starts_mut(&mut self) -> StartsMut<'_> {
        StartsMut {
            rate_per_s: &mut self.sessions_per_s,
            duration_s: &mut self.duration_s,
            process: &mut self.arrival_process,
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        ChatConfig::validate(self)
    }

    fn max_request_tokens(&self) -> Option<u64> {
        Some(self.max_context_tokens.into())
    }

    fn workload(&self, seed: u64, starts: Starts, _lengths: Option<Recording>) -> Box<dyn Workload> {
        let tenant_names = self.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        Box::new(Sessions::new(Chat { config: self.clone(), seed, tenant_names }, starts))
    }
}

/// What the sessions of a [`ChatConfig`] say. The same configuration and seed give the same
/// sessions, whatever happens to their requests; only the times of later turns depend on the
/// answers.
struct Chat {
    config: ChatConfig,
    seed: u64,
    tenant_names: Vec<String>,
}

impl Chat {
    /// A prompt as the engine gets it: its tokens, and what it carries beside them.
    fn prompt(&self, session: &Session) -> (TokenRuns, PromptExtras) {
        let tenants = &self.config.tenants;
        let own = &tenants[session.tenant as usize];
        let lora = own.lora.as_ref().map(|name| {
            let first = tenants.iter().position(|other| other.lora.as_ref() == Some(name));
            // Ids count from 1; the path stands for the adapter's files.
            let id = first.unwrap_or_default() as u64 + 1;
            LoraRequest { name: name.clone(), id, path: format!("/adapters/{name}") }
        });
        let text = session.conversation.prompt();
        let extras = PromptExtras {
            lora,
            mm: session.images.clone(),
            cache_salt: own.cache_salt.clone(),
            prompt_embeds: own.prompt_embeds.then(|| PromptEmbeds::OfTokens(text.clone())),
        };
        // To the engine a prompt of embeddings has token 0 everywhere.
        let tokens = if own.prompt_embeds { (0..text.len()).map(|_| 0).collect() } else { text.clone() };
        (tokens, extras)
    }

    /// What a session begins with before its first message: the system prompt of its tenant, and
    /// one of the tenant's few-shot prefixes if it has some.
    fn beginning(&self, index: u64, tenant: u32) -> TokenRuns {
        let own = &self.config.tenants[tenant as usize];
        let mut prompt = shared_text(self.config.system_prompt_of(tenant) as u64, own.system_prompt_tokens);
        if let Some(few_shot) = &own.few_shot {
            // Streams of their own, so that the same things are said with and without.
            let mut rng = rng::stream(self.seed, "chat few-shot", index);
            if rng.random::<f64>() < few_shot.share {
                let text = self.config.first_few_shot_text(tenant)
                    + Zipf::new(few_shot.num_prefixes, few_shot.zipf_exponent).sample(&mut rng);
                let mut length_rng = rng::stream(self.seed, "chat few-shot prefix", text);
                prompt.extend(&shared_text(text, few_shot.prefix_tokens.sample_count(&mut length_rng)));
            }
        }
        prompt
    }
}

impl Traffic for Chat {
    type Turn = Session;

    fn open(&mut self, index: u64) -> Result<Option<Session>, WorkloadError> {
        let mut rng = rng::stream(self.seed, "chat session", index);
        let weights = self.config.tenants.iter().map(|tenant| tenant.weight);
        let tenant = pick_weighted(weights, rng.random()) as u32;
        let beginning = self.beginning(index, tenant);
        Ok(Session::open(&self.config, self.seed, index, tenant, beginning, rng))
    }

    fn request(&self, session: &Session) -> RequestSpec {
        let tenant = &self.config.tenants[session.tenant as usize];
        let (prompt, extras) = self.prompt(session);
        RequestSpec {
            extras,
            priority: tenant.priority,
            skip_reading_prefix_cache: tenant.prompt_logprobs,
            patience: session.patience,
            tenant: session.tenant,
            turn: session.turn,
            ..RequestSpec::plain(prompt, session.answer())
        }
    }

    fn answered(&mut self, session: Session, next: &mut Vec<Next<Session>>) {
        if let Some((think_time, session)) = session.go_on(&self.config) {
            next.push(Next::only(think_time, session));
        }
    }

    fn aborted(&mut self, session: Session, next: &mut Vec<Next<Session>>) {
        if let Some(session) = session.give_up(&self.config) {
            next.push(Next::only(SimTime::ZERO, session));
        }
    }

    fn tenants(&self) -> &[String] {
        &self.tenant_names
    }
}
