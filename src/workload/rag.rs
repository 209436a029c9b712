//! Questions about documents that were retrieved for them (retrieval-augmented generation).
//!
//! A prompt is a system prompt, the documents, and the question. A cache of prefixes finds a
//! document only where everything before it is the same too, so the order of documents decides.

use serde::{Deserialize, Serialize};

use super::generator::{Generator, StartsMut};
use super::recording::Recording;
use super::sessions::{Independent, Requests, Sessions};
use super::starts::{Starts, StartsConfig};
use super::token_ids::{MAX_SHARED_TEXTS, first_own_token, shared_text};
use super::zipf::{self, Zipf};
use super::{ArrivalProcess, ConfigError, Distribution, RequestSpec, Workload, WorkloadError, require, rng};
use crate::prompt::TokenRuns;

/// Independent questions, each with its documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RagConfig {
    /// None where the arrival process sets its times.
    #[serde(default)]
    pub requests_per_s: Option<f64>,
    #[serde(default)]
    pub arrival_process: ArrivalProcess,
    /// No request is sent at or after this time.
    #[serde(default)]
    pub duration_s: Option<f64>,
    #[serde(default)]
    pub num_requests: Option<u64>,
    /// So many requests at a time: the next is sent when one ends.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    /// Before the documents, the same in all prompts.
    #[serde(default)]
    pub system_prompt_tokens: u32,
    /// How many documents, or chunks of them, there are to retrieve.
    pub num_documents: u64,
    /// Length of each document, drawn once.
    pub document_tokens: Distribution,
    /// Different documents in a prompt.
    pub documents_per_request: Distribution,
    /// The document of rank `k` is retrieved in proportion to `k` to the power of minus this; 0 is
    /// even.
    pub zipf_exponent: f64,
    #[serde(default)]
    pub document_order: DocumentOrder,
    /// After the documents, of one request alone.
    pub question_tokens: Distribution,
    pub answer_tokens: Distribution,
}

/// How the documents of a prompt follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentOrder {
    /// As they were retrieved: any order, popular ones more often first.
    #[default]
    Retrieved,
    /// The most popular first, so that prompts with the same popular documents share a prefix.
    Popularity,
}

impl Generator for RagConfig {
    fn starts(&self) -> StartsConfig<'_> {
        StartsConfig {
            rate_per_s: self.requests_per_s,
            rate_field: "requests_per_s",
            process: &self.arrival_process,
            duration_s: self.duration_s,
            count: self.num_requests,
            count_field: "num_requests",
            max_concurrency: self.max_concurrency,
            stream: "rag arrivals",
        }
    }

    fn starts_mut(&mut self) -> StartsMut<'_> {
        StartsMut { rate_per_s: &mut self.requests_per_s, duration_s: &mut self.duration_s }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.starts().validate()?;
        for (name, counts) in [
            ("document_tokens", &self.document_tokens),
            ("documents_per_request", &self.documents_per_request),
            ("question_tokens", &self.question_tokens),
            ("answer_tokens", &self.answer_tokens),
        ] {
            counts.validate_count().map_err(|error| error.within(name))?;
        }
        let most = MAX_SHARED_TEXTS - 1;
        let expected = format!("a whole number from 1 to {most}");
        require((1..=most).contains(&self.num_documents), "num_documents", self.num_documents, expected)?;
        let most = self.documents_per_request.count_bounds().1;
        let expected = format!("at most `num_documents`, {}", self.num_documents);
        require(
            u64::from(most) <= self.num_documents,
            "documents_per_request",
            format!("up to {most}"),
            expected,
        )?;
        zipf::validate("zipf_exponent", self.zipf_exponent)
    }

    fn max_request_tokens(&self) -> Option<u64> {
        let most = |length: &Distribution| u64::from(length.count_bounds().1);
        let documents = most(&self.document_tokens).saturating_mul(most(&self.documents_per_request));
        let rest = most(&self.question_tokens) + most(&self.answer_tokens);
        Some(documents.saturating_add(rest + u64::from(self.system_prompt_tokens)))
    }

    fn workload(&self, seed: u64, starts: Starts, _lengths: Option<Recording>) -> Box<dyn Workload> {
        let own =
            u64::from(self.question_tokens.count_bounds().1) + u64::from(self.answer_tokens.count_bounds().1);
        let requests = Independent(Rag {
            config: self.clone(),
            seed,
            popularity: Zipf::new(self.num_documents, self.zipf_exponent),
            own_tokens: own.try_into().unwrap_or(u32::MAX),
        });
        Box::new(Sessions::new(requests, starts))
    }
}

/// What the requests of a [`RagConfig`] say.
struct Rag {
    config: RagConfig,
    seed: u64,
    popularity: Zipf,
    /// The most tokens of a request that are not a document's.
    own_tokens: u32,
}

/// Draws a document so often until it is one that the prompt does not have yet.
const MAX_REPEATS: u32 = 1_000;

impl Rag {
    fn retrieve(&self, rng: &mut rand_chacha::ChaCha8Rng) -> Vec<u64> {
        let count = self.config.documents_per_request.sample_count(rng) as usize;
        let mut documents: Vec<u64> = Vec::with_capacity(count);
        while documents.len() < count {
            let mut draws = (0..MAX_REPEATS).map(|_| self.popularity.sample(rng));
            let new = draws.find(|document| !documents.contains(document));
            // The prompt has nearly all that is ever asked for: the most popular of the others.
            documents.extend(new.or_else(|| (0..).find(|document| !documents.contains(document))));
        }
        if self.config.document_order == DocumentOrder::Popularity {
            documents.sort_unstable();
        }
        documents
    }
}

impl Requests for Rag {
    fn request(&mut self, index: u64) -> Result<Option<RequestSpec>, WorkloadError> {
        let mut rng = rng::stream(self.seed, "rag request", index);
        let question = self.config.question_tokens.sample_count(&mut rng);
        let answer = self.config.answer_tokens.sample_count(&mut rng);
        let mut prompt = shared_text(0, self.config.system_prompt_tokens);
        for document in self.retrieve(&mut rng) {
            let mut length_rng = rng::stream(self.seed, "rag document", document);
            let tokens = self.config.document_tokens.sample_count(&mut length_rng);
            prompt.extend(&shared_text(1 + document, tokens));
        }
        let first = first_own_token(index, self.own_tokens);
        prompt.push_run(first, question);
        Ok(Some(RequestSpec::plain(prompt, TokenRuns::from_run(first + u64::from(question), answer))))
    }
}
