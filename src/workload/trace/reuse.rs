//! What prompts share of which a trace records only the length.
//!
//! Nothing is assumed by itself: the scenario says what, and the report repeats it.

use std::collections::{BTreeMap, VecDeque};

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{TraceRequest, TraceTokens};
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::zipf::Zipf;
use crate::workload::{ConfigError, Distribution, rng};

/// What prompts share of which only the length is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReuseConfig {
    /// No prompt shares anything with another.
    None,
    /// Each prompt begins with one of some prefixes.
    SharedPrefix(SharedPrefixReuse),
    /// Some prompts go on from an earlier prompt and its answer.
    Sessions(SessionReuse),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedPrefixReuse {
    /// How many prefixes there are.
    pub num_prefixes: u32,
    /// Length of a prefix. A prompt that is not longer than its prefix is the beginning of it.
    pub prefix_tokens: Distribution,
    /// The n-th most popular prefix is taken in proportion to n to the power of minus this; 0 makes
    /// all equally popular.
    #[serde(default)]
    pub zipf_exponent: f64,
}

/// A prompt goes on from the longest conversation that it has room for: all of its last prompt and
/// answer, and at least one token more. Where the trace records sessions these are taken, and a prompt
/// that its conversation so far does not fit into begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionReuse {
    /// The chance of a prompt to go on from another, if there is one that fits.
    pub continue_chance: f64,
    /// A conversation that nobody went on from for so long is over.
    pub max_gap_s: f64,
}

impl ReuseConfig {
    /// Checks the values; the error names the path of the field.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::None => Ok(()),
            Self::SharedPrefix(shared) => shared.validate().map_err(|error| error.within("shared_prefix")),
            Self::Sessions(sessions) => sessions.validate().map_err(|error| error.within("sessions")),
        }
    }

    /// In words, for the report.
    pub(super) fn note(&self) -> String {
        let what = match self {
            Self::None => "share nothing".to_owned(),
            Self::SharedPrefix(shared) => {
                let (prefixes, exponent) = (shared.num_prefixes, shared.zipf_exponent);
                format!("begin with one of {prefixes} prefixes (Zipf {exponent})")
            }
            Self::Sessions(sessions) => {
                let (chance, gap_s) = (sessions.continue_chance, sessions.max_gap_s);
                format!("go on from an earlier one and its answer (chance {chance}, within {gap_s} s)")
            }
        };
        format!("only lengths are recorded: prompts are assumed to {what}")
    }
}

impl SharedPrefixReuse {
    fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=1_000_000).contains(&self.num_prefixes) {
            return Err(ConfigError::new(
                "num_prefixes",
                self.num_prefixes,
                "a whole number from 1 to 1000000",
            ));
        }
        if !(0.0..=10.0).contains(&self.zipf_exponent) {
            return Err(ConfigError::new("zipf_exponent", self.zipf_exponent, "a number from 0 to 10"));
        }
        self.prefix_tokens.validate_count().map_err(|error| error.within("prefix_tokens"))
    }
}

impl SessionReuse {
    fn validate(&self) -> Result<(), ConfigError> {
        if !(0.0..=1.0).contains(&self.continue_chance) {
            return Err(ConfigError::new("continue_chance", self.continue_chance, "a chance from 0 to 1"));
        }
        if !(0.0..=1e9).contains(&self.max_gap_s) {
            return Err(ConfigError::new("max_gap_s", self.max_gap_s, "seconds from 0 to 1000000000"));
        }
        Ok(())
    }
}

/// Ids that no reader gives out.
pub(crate) const FIRST_REUSE_TOKEN: u64 = 7 << 60;
/// Prefix `i` has the ids from here and `i * PREFIX_TOKENS` on.
pub(crate) const FIRST_PREFIX_TOKEN: u64 = FIRST_REUSE_TOKEN + (1 << 59);
const PREFIX_TOKENS: u64 = 1 << 32;

/// Sessions of our own are numbered from here, above those that traces number.
const FIRST_OWN_SESSION: u64 = 1_000_000_000_000;

/// Gives tokens to prompts and answers that have only a length.
pub(super) struct Reuse {
    model: Model,
    seed: u64,
    next_token: u64,
}

enum Model {
    None,
    SharedPrefix(SharedPrefixReuse, ChaCha8Rng),
    Sessions(Sessions),
}

impl Reuse {
    pub fn new(config: &ReuseConfig, seed: u64) -> Self {
        let model = match config {
            ReuseConfig::None => Model::None,
            ReuseConfig::SharedPrefix(shared) => {
                Model::SharedPrefix(shared.clone(), rng::stream(seed, "trace reuse", 0))
            }
            ReuseConfig::Sessions(sessions) => {
                Model::Sessions(Sessions::new(*sessions, rng::stream(seed, "trace reuse", 0)))
            }
        };
        Self { model, seed, next_token: FIRST_REUSE_TOKEN }
    }

    /// Fills in the tokens of a request whose prompt has only a length.
    pub fn fill(&mut self, request: &mut TraceRequest) {
        let TraceTokens::Length(length) = request.prompt else { return };
        let is_recorded = request.session.is_some();
        let shared = match &mut self.model {
            Model::None => TokenRuns::new(),
            Model::SharedPrefix(config, rng) => shared_prefix(config, self.seed, rng, length),
            Model::Sessions(sessions) => sessions.continued(request, length),
        };
        let mut prompt = shared;
        let rest = length - prompt.len();
        prompt.push_run(self.take(rest), rest);
        let answer_tokens = request.output.len();
        let answer = TokenRuns::from_run(self.take(answer_tokens), answer_tokens);
        if let Model::Sessions(sessions) = &mut self.model {
            sessions.remember(request, is_recorded, &prompt, &answer);
        }
        request.prompt = TraceTokens::Known(prompt);
        request.output = TraceTokens::Known(answer);
    }

    /// The first of so many ids that are nobody else's.
    fn take(&mut self, len: u32) -> u64 {
        self.next_token += u64::from(len);
        self.next_token - u64::from(len)
    }
}

fn shared_prefix(config: &SharedPrefixReuse, seed: u64, rng: &mut impl Rng, length: u32) -> TokenRuns {
    let prefix = Zipf::new(config.num_prefixes.into(), config.zipf_exponent).sample(rng);
    let prefix_tokens = config.prefix_tokens.sample_count(&mut rng::stream(seed, "trace prefix", prefix));
    TokenRuns::from_run(FIRST_PREFIX_TOKEN + prefix * PREFIX_TOKENS, prefix_tokens.min(length))
}

/// Conversations that a prompt can go on from.
struct Sessions {
    config: SessionReuse,
    rng: ChaCha8Rng,
    next_id: u64,
    /// Conversations of our own, by length and number.
    open: BTreeMap<(u32, u64), Conversation>,
    /// In the order in which they fall silent: time, length and number.
    by_time: VecDeque<(SimTime, u32, u64)>,
    /// The recorded ones.
    recorded: FxHashMap<u64, Conversation>,
}

struct Conversation {
    tokens: TokenRuns,
    next_turn: u32,
}

impl Sessions {
    fn new(config: SessionReuse, rng: ChaCha8Rng) -> Self {
        Self {
            config,
            rng,
            next_id: FIRST_OWN_SESSION,
            open: BTreeMap::new(),
            by_time: VecDeque::new(),
            recorded: FxHashMap::default(),
        }
    }

    /// The conversation that a request goes on from; without a recorded session it gets one of ours.
    fn continued(&mut self, request: &mut TraceRequest, length: u32) -> TokenRuns {
        if let Some(session) = request.session {
            let so_far = self.recorded.remove(&session).filter(|so_far| so_far.tokens.len() < length);
            return so_far.map_or_else(TokenRuns::new, |so_far| so_far.tokens);
        }
        self.forget(request.at.unwrap_or_default());
        let goes_on = self.rng.random::<f64>() < self.config.continue_chance;
        let longest = self.open.range(..(length, 0)).next_back().map(|(&key, _)| key);
        match longest.filter(|_| goes_on).and_then(|key| Some((key, self.open.remove(&key)?))) {
            Some(((_, id), conversation)) => {
                (request.session, request.turn) = (Some(id), conversation.next_turn);
                conversation.tokens
            }
            None => {
                request.session = Some(self.next_id);
                self.next_id += 1;
                TokenRuns::new()
            }
        }
    }

    fn remember(
        &mut self,
        request: &TraceRequest,
        is_recorded: bool,
        prompt: &TokenRuns,
        answer: &TokenRuns,
    ) {
        let Some(id) = request.session else { return };
        let mut tokens = prompt.clone();
        tokens.extend(answer);
        let conversation = Conversation { tokens, next_turn: request.turn.saturating_add(1) };
        if is_recorded {
            self.recorded.insert(id, conversation);
        } else {
            let length = conversation.tokens.len();
            self.open.insert((length, id), conversation);
            self.by_time.push_back((request.at.unwrap_or_default(), length, id));
        }
    }

    /// Conversations that have been silent for too long are over.
    fn forget(&mut self, now: SimTime) {
        let max_gap = SimTime::from_secs_f64(self.config.max_gap_s);
        while let Some(&(last, length, id)) = self.by_time.front()
            && now.since(last) > max_gap
        {
            self.by_time.pop_front();
            self.open.remove(&(length, id));
        }
    }
}
