//! The kinds of workloads, as a scenario chooses one.

use serde::{Deserialize, Serialize};

use super::agents::AgentsConfig;
use super::chat::ChatConfig;
use super::generator::{Generator, Open, generate};
use super::mix::{Mix, MixConfig};
use super::prefix_repetition::PrefixRepetitionConfig;
use super::rag::RagConfig;
use super::random::RandomConfig;
use super::recording::{TraceFile, in_file};
use super::shared_prefix::SharedPrefixConfig;
use super::trace::{Trace, TraceConfig};
use super::{ConfigError, Workload, WorkloadError};

/// One source of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadConfig {
    /// A recorded trace.
    Trace(Box<TraceConfig>),
    /// Chat sessions.
    Chat(Box<ChatConfig>),
    /// Independent requests.
    Random(Box<RandomConfig>),
    /// Requests with one of a few prefixes, as in `vllm bench serve`.
    PrefixRepetition(Box<PrefixRepetitionConfig>),
    /// Groups of users with a system prompt each, as in inference-perf.
    SharedPrefix(Box<SharedPrefixConfig>),
    /// Agents that call tools.
    Agents(Box<AgentsConfig>),
    /// Questions about retrieved documents.
    Rag(Box<RagConfig>),
    /// Several of these.
    Mix(Box<MixConfig>),
}

/// Where the requests come from.
pub(super) enum Source<'a> {
    Trace(&'a TraceConfig),
    Generator(&'a dyn Generator),
    Mix(&'a MixConfig),
}

impl WorkloadConfig {
    /// The name of the kind, as it is typed.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Trace(_) => "trace",
            Self::Chat(_) => "chat",
            Self::Random(_) => "random",
            Self::PrefixRepetition(_) => "prefix_repetition",
            Self::SharedPrefix(_) => "shared_prefix",
            Self::Agents(_) => "agents",
            Self::Rag(_) => "rag",
            Self::Mix(_) => "mix",
        }
    }

    pub(super) fn source(&self) -> Source<'_> {
        match self {
            Self::Trace(trace) => Source::Trace(trace),
            Self::Chat(chat) => Source::Generator(&**chat),
            Self::Random(random) => Source::Generator(&**random),
            Self::PrefixRepetition(prefix_repetition) => Source::Generator(&**prefix_repetition),
            Self::SharedPrefix(shared_prefix) => Source::Generator(&**shared_prefix),
            Self::Agents(agents) => Source::Generator(&**agents),
            Self::Rag(rag) => Source::Generator(&**rag),
            Self::Mix(mix) => Source::Mix(mix),
        }
    }

    pub(super) fn generator_mut(&mut self) -> Option<&mut dyn Generator> {
        match self {
            Self::Trace(_) | Self::Mix(_) => None,
            Self::Chat(chat) => Some(&mut **chat),
            Self::Random(random) => Some(&mut **random),
            Self::PrefixRepetition(prefix_repetition) => Some(&mut **prefix_repetition),
            Self::SharedPrefix(shared_prefix) => Some(&mut **shared_prefix),
            Self::Agents(agents) => Some(&mut **agents),
            Self::Rag(rag) => Some(&mut **rag),
        }
    }

    /// Checks the values; the error names the path of the field within the kind.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self.source() {
            Source::Trace(trace) => trace.validate(),
            Source::Generator(generator) => generator.validate(),
            Source::Mix(mix) => mix.validate(),
        }
    }

    /// The most tokens that prompt and answer of a request can have together; `None` if only a trace
    /// knows, and of a mix, whose parts know for themselves.
    pub fn max_request_tokens(&self) -> Option<u64> {
        match self.source() {
            Source::Generator(generator) => generator.max_request_tokens(),
            Source::Trace(_) | Source::Mix(_) => None,
        }
    }

    /// The workload. The same configuration and seed give the same requests. `open` opens the file
    /// of the trace at a field, given as what stands behind the kind: nothing, or
    /// `.arrival_process.replay`.
    ///
    /// # Errors
    /// Values that are not valid, and traces that cannot be read.
    pub fn build<E: From<ConfigError> + From<WorkloadError>>(
        &self,
        seed: u64,
        open: &mut Open<'_, E>,
    ) -> Result<Box<dyn Workload>, E> {
        match self.source() {
            Source::Trace(config) => {
                config.validate()?;
                let TraceFile { path, input, tokenizer } = open("", config)?;
                let trace = Trace::new(input, config, tokenizer, seed);
                Ok(Box::new(trace.map_err(|error| in_file(&path, error))?))
            }
            Source::Generator(generator) => generate(generator, seed, open),
            Source::Mix(mix) => Ok(Box::new(Mix::new(mix, seed, open)?)),
        }
    }
}
