//! Generated agents: long contexts that grow in short turns, and branches of one prefix.
//!
//! A prompt is the whole context so far: what all prompts begin with, the task, and answers and
//! results of tools in turn. It is sent when the tool is done. Sub-agents go on from the context of
//! their agent all at the same time; when the last of them ends, their last answers are added to
//! the agent's context and it goes on.

mod config;
#[cfg(test)]
mod tests;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashMap;

pub use config::{AgentsConfig, CompactionConfig, SubagentsConfig};

use super::conversation::Conversation;
use super::generator::{Generator, StartsMut};
use super::recording::Recording;
use super::sessions::{Next, Sessions, Traffic};
use super::starts::{Starts, StartsConfig};
use super::token_ids::{first_own_token, shared_text};
use super::{ConfigError, RequestSpec, Workload, WorkloadError, rng};
use crate::prompt::TokenRuns;
use crate::units::SimTime;

/// Told apart in the report where there are both.
const TENANTS: [&str; 2] = ["agents", "sub-agents"];

impl Generator for AgentsConfig {
    fn starts(&self) -> StartsConfig<'_> {
        StartsConfig {
            rate_per_s: self.sessions_per_s,
            rate_field: "sessions_per_s",
            process: &self.arrival_process,
            duration_s: self.duration_s,
            count: self.num_sessions,
            count_field: "num_sessions",
            max_concurrency: self.max_concurrency,
            stream: "agents arrivals",
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
        AgentsConfig::validate(self)
    }

    fn max_request_tokens(&self) -> Option<u64> {
        Some(self.max_context_tokens.into())
    }

    fn workload(&self, seed: u64, starts: Starts, _lengths: Option<Recording>) -> Box<dyn Workload> {
        let num_tenants = if self.subagents.is_some() { 2 } else { 0 };
        let tenants = TENANTS[..num_tenants].iter().map(|&name| name.to_owned()).collect();
        let agents = Agents { config: self.clone(), seed, tenants, joins: FxHashMap::default() };
        Box::new(Sessions::new(agents, starts))
    }
}

/// What the agents of an [`AgentsConfig`] say.
struct Agents {
    config: AgentsConfig,
    seed: u64,
    tenants: Vec<String>,
    /// Agents that wait for their sub-agents, by session.
    joins: FxHashMap<u64, Join>,
}

/// An agent, or a sub-agent, that calls the model.
struct Call {
    session: u64,
    role: Role,
    context: Conversation,
    /// Nobody else draws from it, and always in the same order.
    rng: ChaCha8Rng,
    /// How many requests of the session this one goes on from, those of sub-agents that have ended
    /// not counted.
    turn: u32,
    calls_left: u32,
    output_tokens: u32,
}

enum Role {
    Agent {
        /// Contexts that the session has had so far, which have token ids of their own.
        num_contexts: u64,
        /// The model is asked for a summary; then this follows.
        compacts: Option<Pending>,
    },
    /// By its place among those that started together.
    Subagent(u32),
}

/// What follows an answer: answers of sub-agents, the result of a tool, and the next answer.
struct Pending {
    quoted: TokenRuns,
    result_tokens: u32,
    output_tokens: u32,
}

/// An agent that waits for its sub-agents.
struct Join {
    agent: Call,
    /// The last answers of the sub-agents that have ended.
    answers: Vec<Option<TokenRuns>>,
}

impl Agents {
    fn beginning(&self) -> TokenRuns {
        let mut prompt = shared_text(0, self.config.system_prompt_tokens);
        prompt.extend(&shared_text(1, self.config.tool_definitions_tokens));
        prompt
    }

    /// The context number `index` of a session. None says more tokens than it may have.
    fn context(&self, session: u64, index: u64, beginning: TokenRuns) -> Conversation {
        let offset = index * u64::from(self.config.max_context_tokens);
        Conversation::new(beginning, first_own_token(session, u32::MAX) + offset)
    }

    /// How many contexts more a session has token ids for.
    fn contexts_left(&self, num_contexts: u64) -> u64 {
        u64::from(u32::MAX / self.config.max_context_tokens).saturating_sub(num_contexts)
    }

    fn fits(&self, context: &Conversation, pending: &Pending) -> bool {
        let more = [pending.quoted.len(), pending.result_tokens, pending.output_tokens];
        context.len_with(&more) <= self.config.room_tokens()
    }

    /// Adds what follows the last answer, and sends the next call.
    fn say(mut call: Call, pending: &Pending, after: SimTime, next: &mut Vec<Next<Call>>) {
        call.context.quote(&pending.quoted);
        call.context.say(pending.result_tokens);
        call.output_tokens = pending.output_tokens;
        Self::send(call, after, next);
    }

    fn send(call: Call, after: SimTime, next: &mut Vec<Next<Call>>) {
        let branch = match call.role {
            Role::Agent { .. } => 0,
            Role::Subagent(place) => place + 1,
        };
        next.push(Next { after, branch, turn: call });
    }

    /// An agent goes on with what is pending, if it has room for it or can make room.
    fn go_on(&self, mut call: Call, pending: Pending, after: SimTime, next: &mut Vec<Next<Call>>) {
        if self.fits(&call.context, &pending) {
            Self::say(call, &pending, after, next);
        } else if let (Role::Agent { num_contexts, compacts }, Some(compaction)) =
            (&mut call.role, &self.config.compaction)
            && self.contexts_left(*num_contexts) > 0
        {
            call.output_tokens = compaction.summary_tokens.sample_count(&mut call.rng);
            *compacts = Some(pending);
            Self::send(call, after, next);
        }
    }

    /// Starts sub-agents in place of calling a tool; gives the agent back if none has room.
    fn branch(
        &mut self,
        mut agent: Call,
        subagents: &SubagentsConfig,
        next: &mut Vec<Next<Call>>,
    ) -> Option<Call> {
        let Role::Agent { num_contexts, .. } = &mut agent.role else { return Some(agent) };
        let count = subagents.branches.sample_count(&mut agent.rng);
        let count = u64::from(count).min(self.contexts_left(*num_contexts)) as u32;
        let beginning =
            if subagents.share_context { agent.context.prompt().clone() } else { self.beginning() };
        let mut place = 0;
        for _ in 0..count {
            let mut rng = ChaCha8Rng::seed_from_u64(agent.rng.next_u64());
            let calls_left = subagents.turns.sample_count(&mut rng);
            let task = Pending {
                quoted: TokenRuns::new(),
                result_tokens: subagents.task_tokens.sample_count(&mut rng),
                output_tokens: self.config.output_tokens.sample_count(&mut rng),
            };
            let context = self.context(agent.session, *num_contexts, beginning.clone());
            if self.fits(&context, &task) {
                *num_contexts += 1;
                let call = Call {
                    session: agent.session,
                    role: Role::Subagent(place),
                    context,
                    rng,
                    turn: agent.turn + 1,
                    calls_left,
                    output_tokens: 0,
                };
                Self::say(call, &task, SimTime::ZERO, next);
                place += 1;
            }
        }
        if place == 0 {
            return Some(agent);
        }
        self.joins.insert(agent.session, Join { agent, answers: vec![None; place as usize] });
        None
    }

    /// A sub-agent ended with this answer; the last to end lets the agent go on.
    fn join(&mut self, session: u64, place: u32, answer: TokenRuns, next: &mut Vec<Next<Call>>) {
        let Some(join) = self.joins.get_mut(&session) else { return };
        join.answers[place as usize] = Some(answer);
        if join.answers.iter().all(Option::is_some)
            && let Some(Join { mut agent, answers }) = self.joins.remove(&session)
        {
            let mut quoted = TokenRuns::new();
            answers.iter().flatten().for_each(|answer| quoted.extend(answer));
            let output_tokens = self.config.output_tokens.sample_count(&mut agent.rng);
            agent.turn += 1;
            self.go_on(agent, Pending { quoted, result_tokens: 0, output_tokens }, SimTime::ZERO, next);
        }
    }

    /// The model has summed up the context: the agent goes on without it, if there is room now.
    fn compacted(&self, mut call: Call, pending: &Pending, next: &mut Vec<Next<Call>>) {
        let summary = call.context.answer(call.output_tokens);
        if let Role::Agent { num_contexts, .. } = &mut call.role {
            call.context = self.context(call.session, *num_contexts, self.beginning());
            *num_contexts += 1;
        }
        call.context.quote(&summary);
        call.turn += 1;
        if self.fits(&call.context, pending) {
            Self::say(call, pending, SimTime::ZERO, next);
        }
    }
}

impl Traffic for Agents {
    type Turn = Call;

    fn open(&mut self, session: u64) -> Result<Option<Call>, WorkloadError> {
        let mut rng = rng::stream(self.seed, "agents session", session);
        let calls_left = self.config.turns.sample_count(&mut rng);
        let task = Pending {
            quoted: TokenRuns::new(),
            result_tokens: self.config.task_tokens.sample_count(&mut rng),
            output_tokens: self.config.output_tokens.sample_count(&mut rng),
        };
        let call = Call {
            session,
            role: Role::Agent { num_contexts: 1, compacts: None },
            context: self.context(session, 0, self.beginning()),
            rng,
            turn: 0,
            calls_left,
            output_tokens: 0,
        };
        let mut first = Vec::new();
        if self.fits(&call.context, &task) {
            Self::say(call, &task, SimTime::ZERO, &mut first);
        }
        Ok(first.pop().map(|next| next.turn))
    }

    fn request(&self, call: &Call) -> RequestSpec {
        let output = call.context.answer(call.output_tokens);
        let tenant = u32::from(matches!(call.role, Role::Subagent(_)));
        let plain = RequestSpec::plain(call.context.prompt().clone(), output);
        RequestSpec { tenant, turn: call.turn, ..plain }
    }

    fn answered(&mut self, mut call: Call, next: &mut Vec<Next<Call>>) {
        if let Role::Agent { compacts, .. } = &mut call.role
            && let Some(pending) = compacts.take()
        {
            return self.compacted(call, &pending, next);
        }
        let answer = call.context.answer(call.output_tokens);
        call.context.say(call.output_tokens);
        call.calls_left -= 1;
        let subagent = match call.role {
            Role::Agent { .. } => None,
            Role::Subagent(place) => Some(place),
        };
        if call.calls_left > 0 {
            if subagent.is_none()
                && let Some(subagents) = self.config.subagents.clone()
                && call.rng.random::<f64>() < subagents.share
            {
                match self.branch(call, &subagents, next) {
                    None => return,
                    Some(agent) => call = agent,
                }
            }
            let pending = Pending {
                quoted: TokenRuns::new(),
                result_tokens: self.config.tool_result_tokens.sample_count(&mut call.rng),
                output_tokens: self.config.output_tokens.sample_count(&mut call.rng),
            };
            let latency = self.config.tool_latency_s.sample_time(&mut call.rng);
            call.turn += 1;
            if subagent.is_none() || self.fits(&call.context, &pending) {
                return self.go_on(call, pending, latency, next);
            }
        }
        if let Some(place) = subagent {
            self.join(call.session, place, answer, next);
        }
    }

    fn tenants(&self) -> &[String] {
        &self.tenants
    }
}
