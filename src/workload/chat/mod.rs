//! Generated chat traffic: sessions of several turns, closed-loop.
//!
//! The next prompt of a session is the whole conversation so far and a new message, and it arrives
//! a think time after the last answer ended. Sessions of a tenant share its system prompt; nothing
//! else is shared.

mod config;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rand::RngExt;
use rustc_hash::FxHashMap;

pub use config::{ChatConfig, TenantConfig};
use session::Session;

use super::{Arrival, ArrivalTimes, ConfigError, RequestSpec, Workload, WorkloadError, rng};
use crate::prompt::{LoraRequest, PromptExtras};
use crate::units::SimTime;

/// The workload of a [`ChatConfig`]. The same configuration and seed give the same sessions,
/// whatever happens to their requests; only the times of later turns depend on the answers.
pub struct Chat {
    config: ChatConfig,
    seed: u64,
    tenant_names: Vec<String>,
    session_starts: ArrivalTimes,
    next_session: u64,
    next_request: u64,
    /// Sessions with a message to send, by time, at equal times by session index: the order must
    /// not depend on which answer ended first. Holds the next new session while there is one.
    writing: BTreeMap<(SimTime, u64), Session>,
    /// Sessions that wait for the answer to the request with this index.
    waiting: FxHashMap<u64, Session>,
}

impl Chat {
    pub fn new(config: ChatConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let arrivals = rng::stream(seed, "chat session arrivals", 0);
        let mut chat = Self {
            seed,
            tenant_names: config.tenants.iter().map(|tenant| tenant.name.clone()).collect(),
            session_starts: ArrivalTimes::new(config.arrival_process, config.sessions_per_s, arrivals),
            next_session: 0,
            next_request: 0,
            writing: BTreeMap::new(),
            waiting: FxHashMap::default(),
            config,
        };
        chat.open_session();
        Ok(chat)
    }

    /// Opens the next session that has something to send, if there is one.
    fn open_session(&mut self) {
        let duration = self.config.duration_s.map_or(SimTime::MAX, SimTime::from_secs_f64);
        let num_sessions = self.config.num_sessions.unwrap_or(u64::MAX);
        while self.next_session < num_sessions
            && let Some(at) = self.session_starts.next()
            && at < duration
        {
            let index = self.next_session;
            self.next_session += 1;
            let mut rng = rng::stream(self.seed, "chat session", index);
            let tenant = self.pick_tenant(rng.random());
            if let Some(session) = Session::open(&self.config, index, tenant, rng) {
                self.writing.insert((at, index), session);
                return;
            }
        }
        self.next_session = num_sessions;
    }

    /// What a tenant's requests carry beside their tokens.
    fn extras(&self, tenant: u32) -> PromptExtras {
        let tenants = &self.config.tenants;
        let own = &tenants[tenant as usize];
        let lora = own.lora.as_ref().map(|name| {
            let first = tenants.iter().position(|other| other.lora.as_ref() == Some(name));
            // Ids count from 1; the path stands for the adapter's files.
            let id = first.unwrap_or_default() as u64 + 1;
            LoraRequest { name: name.clone(), id, path: format!("/adapters/{name}") }
        });
        PromptExtras { lora, cache_salt: own.cache_salt.clone(), ..PromptExtras::default() }
    }

    /// The tenant at this point, from 0 to 1, of all weights laid end to end.
    fn pick_tenant(&self, point: f64) -> u32 {
        let tenants = &self.config.tenants;
        let mut left = point * tenants.iter().map(|tenant| tenant.weight).sum::<f64>();
        let picked = tenants.iter().position(|tenant| {
            left -= tenant.weight;
            left < 0.0
        });
        // Rounding can leave the point at the very end.
        picked.unwrap_or(tenants.len() - 1) as u32
    }
}

impl Workload for Chat {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        Ok(self.writing.first_key_value().map(|(&(at, _), _)| at))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let Some(((at, _), session)) = self.writing.pop_first() else { return Ok(None) };
        if session.turn == 0 {
            self.open_session();
        }
        let request = RequestSpec {
            index: self.next_request,
            prompt: session.prompt.clone(),
            output: session.answer(),
            extras: self.extras(session.tenant),
            priority: self.config.tenants[session.tenant as usize].priority,
            skip_reading_prefix_cache: self.config.tenants[session.tenant as usize].prompt_logprobs,
            patience: None,
            tenant: session.tenant,
            session: Some(session.index),
            turn: session.turn,
            trace_line: None,
        };
        self.waiting.insert(request.index, session);
        self.next_request += 1;
        Ok(Some(Arrival { at, request }))
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        if let Some(session) = self.waiting.remove(&index)
            && let Some((think_time, session)) = session.go_on(&self.config)
        {
            self.writing.insert((at + think_time, session.index), session);
        }
    }

    fn tenants(&self) -> &[String] {
        &self.tenant_names
    }
}
