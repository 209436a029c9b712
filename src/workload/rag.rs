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
        StartsMut {
            rate_per_s: &mut self.requests_per_s,
            duration_s: &mut self.duration_s,
            process: &mut self.arrival_process,
        }
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::workload::Arrival;
    use crate::workload::testing::{generated, infinite_cache_hits};

    fn config(yaml: &str) -> RagConfig {
        let lengths = "system_prompt_tokens: 20, document_tokens: 100, question_tokens: 9, answer_tokens: 4";
        serde_yaml::from_str(&format!("{{requests_per_s: 5, {lengths}, {yaml}}}")).unwrap()
    }

    /// The documents of a prompt, in order, from 0.
    fn documents(arrival: &Arrival) -> Vec<u64> {
        let runs = arrival.request.prompt.runs();
        runs[1..runs.len() - 1].iter().map(|run| (run.start >> 32) - 1).collect()
    }

    #[test]
    fn a_prompt_has_its_number_of_different_documents() {
        let arrivals = generated(
            &config("num_requests: 200, num_documents: 8, documents_per_request: 5, zipf_exponent: 1.2"),
            1,
        );
        for arrival in &arrivals {
            assert_eq!(documents(arrival).into_iter().collect::<BTreeSet<_>>().len(), 5);
            assert_eq!((arrival.request.prompt.len(), arrival.request.output.len()), (20 + 500 + 9, 4));
        }
    }

    #[test]
    fn one_document_a_prompt_is_hit_whenever_it_came_before() {
        let config =
            config("num_requests: 300, num_documents: 50, documents_per_request: 1, zipf_exponent: 1");
        let arrivals = generated(&config, 1);
        let different: BTreeSet<u64> = arrivals.iter().flat_map(documents).collect();
        let hits = 299 * 20 + (300 - different.len() as u64) * 100;
        assert_eq!(infinite_cache_hits(&arrivals), hits);
        // The expected number of different documents after 300 draws is the sum of
        // 1 - (1 - p)^300; its variance is below that sum of p' (1 - p').
        let harmonic: f64 = (1..=50).map(|rank| 1.0 / f64::from(rank)).sum();
        let seen = |rank: u32| 1.0 - (1.0 - 1.0 / (f64::from(rank) * harmonic)).powi(300);
        let expected: f64 = (1..=50).map(seen).sum();
        let deviation = (1..=50).map(|rank| seen(rank) * (1.0 - seen(rank))).sum::<f64>().sqrt();
        assert!(
            (different.len() as f64 - expected).abs() < 5.0 * deviation,
            "{} of {expected}",
            different.len()
        );
    }

    #[test]
    fn the_first_document_follows_the_law_of_popularity() {
        let config =
            config("num_requests: 20000, num_documents: 5, documents_per_request: 2, zipf_exponent: 1");
        let mut first: BTreeMap<u64, f64> = BTreeMap::new();
        let mut second_after_first = 0.0;
        for arrival in generated(&config, 1) {
            let documents = documents(&arrival);
            *first.entry(documents[0]).or_default() += 1.0;
            second_after_first += f64::from(u8::from(documents == [0, 1]));
        }
        // 1 + 1/2 + ... + 1/5 = 137/60.
        for (document, count) in first {
            let share: f64 = 60.0 / 137.0 / (document + 1) as f64;
            let error = (20_000.0 * share * (1.0 - share)).sqrt();
            assert!((count - 20_000.0 * share).abs() < 5.0 * error, "{document}: {count}");
        }
        // After the first document, 60/137 of all, the second has 30/137 of the other 77/137.
        let share: f64 = 60.0 / 137.0 * 30.0 / 77.0;
        let error = (20_000.0 * share * (1.0 - share)).sqrt();
        assert!((second_after_first - 20_000.0 * share).abs() < 5.0 * error, "{second_after_first}");
    }

    #[test]
    fn order_decides_what_is_hit() {
        let hits = |order: &str| {
            let law = "num_requests: 300, num_documents: 30, documents_per_request: 3, zipf_exponent: 1.5";
            infinite_cache_hits(&generated(&config(&format!("{law}, document_order: {order}")), 1))
        };
        // Of 300 prompts with the same documents either way.
        assert!(hits("popularity") > hits("retrieved"), "{} {}", hits("popularity"), hits("retrieved"));
    }

    #[test]
    fn nearly_all_documents_in_a_prompt_are_found_however_rare_some_are() {
        let config =
            config("num_requests: 3, num_documents: 30, documents_per_request: 30, zipf_exponent: 10");
        for arrival in generated(&config, 1) {
            let mut documents = documents(&arrival);
            documents.sort_unstable();
            assert!(documents.into_iter().eq(0..30));
        }
    }

    #[test]
    fn a_document_has_one_length() {
        let config = RagConfig {
            document_tokens: Distribution::Uniform { min: 1.0, max: 1_000_000.0 },
            ..config("num_requests: 100, num_documents: 10, documents_per_request: 2, zipf_exponent: 0")
        };
        let mut lengths: BTreeMap<u64, u32> = BTreeMap::new();
        for arrival in generated(&config, 1) {
            for run in &arrival.request.prompt.runs()[1..3] {
                assert_eq!(*lengths.entry(run.start).or_insert(run.len), run.len);
            }
        }
        assert_eq!(lengths.len(), 10);
    }

    #[test]
    fn more_documents_a_prompt_than_there_are_are_refused() {
        let config = config("num_requests: 1, num_documents: 3, documents_per_request: 4, zipf_exponent: 1");
        assert_eq!(
            Generator::validate(&config).unwrap_err().to_string(),
            "`documents_per_request`: found up to 4, expected at most `num_documents`, 3"
        );
    }
}
