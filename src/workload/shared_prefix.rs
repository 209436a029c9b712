//! Groups of users with a system prompt each, as the `shared_prefix` data of inference-perf, which
//! llm-d's benchmarks use (`inference_perf/datagen`, `SharedPrefixDataGenerator`).
//!
//! There are `num_groups * num_prompts_per_group` different prompts, in random order. After the last
//! the first comes again, word for word.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
use super::generator::{Generator, StartsMut};
use super::recording::Recording;
use super::sessions::{Next, Sessions, Traffic};
use super::starts::{Starts, StartsConfig};
use super::token_ids::{MAX_SHARED_TEXTS, first_own_token, shared_text};
use super::{ArrivalProcess, ConfigError, Distribution, RequestSpec, Workload, WorkloadError, require, rng};

/// Prompts of a group's system prompt and a question of their own, or conversations that begin so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedPrefixConfig {
    /// None where the arrival process sets its times.
    #[serde(default)]
    pub sessions_per_s: Option<f64>,
    #[serde(default)]
    pub arrival_process: ArrivalProcess,
    /// No session starts at or after this time; those under way go on to their end.
    #[serde(default)]
    pub duration_s: Option<f64>,
    #[serde(default)]
    pub num_sessions: Option<u64>,
    /// So many sessions at a time: the next starts when one ends.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    pub num_groups: u64,
    pub num_prompts_per_group: u64,
    /// Of each group, drawn once.
    pub system_prompt_len: Distribution,
    /// Of each question.
    pub question_len: Distribution,
    /// Of each answer.
    pub output_len: Distribution,
    /// Questions of a session; more than 1 is inference-perf's `enable_multi_turn_chat`.
    #[serde(default = "one")]
    pub turns: Distribution,
    /// From the end of an answer to the next question.
    #[serde(default = "zero")]
    pub think_time_s: Distribution,
}

const fn one() -> Distribution {
    Distribution::Fixed(1.0)
}

const fn zero() -> Distribution {
    Distribution::Fixed(0.0)
}

impl Generator for SharedPrefixConfig {
    fn starts(&self) -> StartsConfig<'_> {
        StartsConfig {
            rate_per_s: self.sessions_per_s,
            rate_field: "sessions_per_s",
            process: &self.arrival_process,
            duration_s: self.duration_s,
            count: self.num_sessions,
            count_field: "num_sessions",
            max_concurrency: self.max_concurrency,
            stream: "shared_prefix arrivals",
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
        self.starts().validate()?;
        let (groups, prompts) = (self.num_groups, self.num_prompts_per_group);
        let expected = format!("a whole number from 1 to {MAX_SHARED_TEXTS}");
        require((1..=MAX_SHARED_TEXTS).contains(&groups), "num_groups", groups, expected)?;
        let most = MAX_SHARED_TEXTS / groups;
        let expected = format!("a whole number from 1 to {most}, with `num_groups` {groups}");
        require((1..=most).contains(&prompts), "num_prompts_per_group", prompts, expected)?;
        for (name, counts) in [
            ("system_prompt_len", &self.system_prompt_len),
            ("question_len", &self.question_len),
            ("output_len", &self.output_len),
            ("turns", &self.turns),
        ] {
            counts.validate_count().map_err(|error| error.within(name))?;
        }
        self.think_time_s.validate_time().map_err(|error| error.within("think_time_s"))
    }

    fn max_request_tokens(&self) -> Option<u64> {
        let most = |length: &Distribution| u64::from(length.count_bounds().1);
        let turn = most(&self.question_len) + most(&self.output_len);
        Some(most(&self.system_prompt_len).saturating_add(turn.saturating_mul(most(&self.turns))))
    }

    fn workload(&self, seed: u64, starts: Starts, _lengths: Option<Recording>) -> Box<dyn Workload> {
        let mut order: Vec<u32> = (0..(self.num_groups * self.num_prompts_per_group) as u32).collect();
        order.shuffle(&mut rng::stream(seed, "shared_prefix order", 0));
        Box::new(Sessions::new(SharedPrefix { config: self.clone(), seed, order }, starts))
    }
}

/// What the sessions of a [`SharedPrefixConfig`] say.
struct SharedPrefix {
    config: SharedPrefixConfig,
    seed: u64,
    /// The prompt of each session, from the beginning again after the last.
    order: Vec<u32>,
}

/// A question and the conversation before it.
struct Turn {
    conversation: Conversation,
    rng: ChaCha8Rng,
    turn: u32,
    num_turns: u32,
    answer_tokens: u32,
}

impl SharedPrefix {
    fn ask(&self, turn: &mut Turn) {
        turn.conversation.say(self.config.question_len.sample_count(&mut turn.rng));
        turn.answer_tokens = self.config.output_len.sample_count(&mut turn.rng);
    }
}

impl Traffic for SharedPrefix {
    type Turn = Turn;

    fn open(&mut self, index: u64) -> Result<Option<Turn>, WorkloadError> {
        let config = &self.config;
        let prompt = u64::from(self.order[(index % self.order.len() as u64) as usize]);
        let group = prompt / config.num_prompts_per_group;
        let mut group_rng = rng::stream(self.seed, "shared_prefix group", group);
        let system_prompt = shared_text(group, config.system_prompt_len.sample_count(&mut group_rng));
        // All that is said depends on the prompt alone: when it comes again it is the same.
        let mut rng = rng::stream(self.seed, "shared_prefix prompt", prompt);
        let mut turn = Turn {
            num_turns: config.turns.sample_count(&mut rng),
            conversation: Conversation::new(system_prompt, first_own_token(prompt, u32::MAX)),
            rng,
            turn: 0,
            answer_tokens: 0,
        };
        self.ask(&mut turn);
        Ok(Some(turn))
    }

    fn request(&self, turn: &Turn) -> RequestSpec {
        let Turn { conversation, answer_tokens, .. } = turn;
        let output = conversation.answer(*answer_tokens);
        RequestSpec { turn: turn.turn, ..RequestSpec::plain(conversation.prompt().clone(), output) }
    }

    fn answered(&mut self, mut turn: Turn, next: &mut Vec<Next<Turn>>) {
        turn.turn += 1;
        if turn.turn < turn.num_turns {
            turn.conversation.say(turn.answer_tokens);
            let think_time = self.config.think_time_s.sample_time(&mut turn.rng);
            self.ask(&mut turn);
            next.push(Next::only(think_time, turn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::TokenRuns;
    use crate::workload::testing::{
        assert_one_at_a_time, by_session, generated, infinite_cache_hits, run, workload,
    };

    fn config(yaml: &str) -> SharedPrefixConfig {
        let lengths =
            "num_groups: 3, num_prompts_per_group: 4, system_prompt_len: 50, question_len: 7, output_len: 5";
        serde_yaml::from_str(&format!("{{sessions_per_s: 2, {lengths}, {yaml}}}")).unwrap()
    }

    #[test]
    fn every_prompt_comes_once_and_then_again_word_for_word() {
        let arrivals = generated(&config("num_sessions: 30"), 1);
        let prompts: Vec<&TokenRuns> = arrivals.iter().map(|a| &a.request.prompt).collect();
        assert!(prompts.iter().all(|prompt| prompt.len() == 57));
        let mut different = prompts[..12].to_vec();
        different.sort_by_key(|prompt| (prompt.get(0), prompt.get(50)));
        different.dedup();
        assert_eq!(different.len(), 12);
        for index in 12..30 {
            assert_eq!(prompts[index], prompts[index - 12]);
            assert_eq!(arrivals[index].request.output, arrivals[index - 12].request.output);
        }
        // The first of a group hits nothing, the others of the first 12 its system prompt, the rest
        // everything.
        assert_eq!(infinite_cache_hits(&arrivals), (12 - 3) * 50 + 18 * 57);
    }

    #[test]
    fn turns_grow_a_conversation_of_known_hits() {
        let config = config("num_sessions: 12, turns: 3, think_time_s: 2");
        let answer_ns = |index: u64| 1_000 + index % 3;
        let arrivals = run(&mut *workload(&config, 1).unwrap(), answer_ns);
        assert_one_at_a_time(&arrivals, answer_ns);
        for turns in by_session(&arrivals).values() {
            // 50 + 7, then 5 + 7 more each.
            let lengths: Vec<u32> = turns.iter().map(|a| a.request.prompt.len()).collect();
            assert_eq!(lengths, [57, 69, 81]);
            assert!(
                turns.windows(2).all(|pair| (2.0..2.001).contains(&(pair[1].at - pair[0].at).as_secs_f64()))
            );
        }
        // A later turn hits the conversation before its question: 62 and 74 tokens.
        assert_eq!(infinite_cache_hits(&arrivals), (12 - 3) * 50 + 12 * (62 + 74));
        assert_eq!(Generator::max_request_tokens(&config), Some(50 + 3 * 12));
    }

    #[test]
    fn a_group_has_one_length_of_its_system_prompt() {
        let config = SharedPrefixConfig {
            system_prompt_len: Distribution::Uniform { min: 10.0, max: 1_000_000.0 },
            ..config("num_sessions: 12")
        };
        let arrivals = generated(&config, 1);
        let mut groups: Vec<(u64, u32)> =
            arrivals.iter().map(|a| (a.request.prompt.get(0), a.request.prompt.len())).collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), 3, "{groups:?}");
    }

    #[test]
    fn mistakes_are_named() {
        let config = SharedPrefixConfig { num_groups: 0, ..config("num_sessions: 1") };
        assert_eq!(
            Generator::validate(&config).unwrap_err().to_string(),
            "`num_groups`: found 0, expected a whole number from 1 to 4000000"
        );
        let config = SharedPrefixConfig { num_groups: 10, num_prompts_per_group: 400_001, ..config };
        assert_eq!(
            Generator::validate(&config).unwrap_err().to_string(),
            "`num_prompts_per_group`: found 400001, expected a whole number from 1 to 400000, with \
             `num_groups` 10"
        );
    }
}
