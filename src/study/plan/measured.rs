//! What a run of a plan came to.

use serde::{Deserialize, Serialize};

use super::decision::Share;
use super::step_figures::StepFigures;

/// Figures of one simulation. Requests count that came after the warm-up and before the last session
/// started, so that neither an empty server nor the end of the traffic flatters them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Requests came faster than they could be served, and the run was ended or judged for it: no promise
    /// is kept.
    pub overloaded: bool,
    /// Of the requests that came until the last session started, the share that did not wait then.
    pub served_share: f64,
    /// For each promise.
    pub shares: Vec<Share>,
    /// For each promise with one limit, the value at its percentile.
    pub values_ms: Vec<Option<f64>>,
    pub ttft_p50_ms: f64,
    pub ttft_p90_ms: f64,
    pub ttft_p99_ms: f64,
    pub tpot_p50_ms: f64,
    pub tpot_p90_ms: f64,
    pub tpot_p99_ms: f64,
    pub e2e_p50_ms: f64,
    pub e2e_p90_ms: f64,
    pub e2e_p99_ms: f64,
    pub requests: u64,
    /// Of the counted requests, in the time in which they came.
    pub requests_per_s: f64,
    pub prompt_tokens_per_s: f64,
    pub output_tokens_per_s: f64,
    /// Of the counted requests, on the GPU and in the tiers behind it. Where replicas have roles, of all prompts
    /// while sessions start, in the caches of those that prefill.
    pub queries_tokens: u64,
    pub hits_tokens: u64,
    pub external_hits_tokens: u64,
    /// Mean number of counted requests that are there at the same time.
    pub mean_concurrency: f64,
    pub steps: StepFigures,
    /// Of the replicas of each role, where they have roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_steps: Option<StepFigures>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_steps: Option<StepFigures>,
}

impl Measured {
    /// On the GPU or behind it.
    pub fn hit_rate(&self) -> f64 {
        if self.queries_tokens == 0 {
            return 0.0;
        }
        (self.hits_tokens + self.external_hits_tokens) as f64 / self.queries_tokens as f64
    }
}

impl AsRef<[Share]> for Measured {
    fn as_ref(&self) -> &[Share] {
        &self.shares
    }
}

/// Means over the replications of one load, and counts added up.
pub(super) fn mean_of(runs: &[Measured]) -> Measured {
    let count = runs.len().max(1) as f64;
    let mean = |of: fn(&Measured) -> f64| runs.iter().map(of).sum::<f64>() / count;
    let sum = |of: fn(&Measured) -> u64| runs.iter().map(of).sum::<u64>();
    let promises = runs.first().map_or(0, |run| run.shares.len());
    Measured {
        overloaded: runs.iter().any(|run| run.overloaded),
        served_share: mean(|run| run.served_share),
        shares: (0..promises)
            .map(|index| {
                runs.iter().fold(Share::default(), |sum, run| Share {
                    kept: sum.kept + run.shares[index].kept,
                    of: sum.of + run.shares[index].of,
                })
            })
            .collect(),
        values_ms: (0..promises)
            .map(|index| {
                let values: Option<Vec<f64>> = runs.iter().map(|run| run.values_ms[index]).collect();
                values.filter(|it| !it.is_empty()).map(|it| it.iter().sum::<f64>() / it.len() as f64)
            })
            .collect(),
        ttft_p50_ms: mean(|run| run.ttft_p50_ms),
        ttft_p90_ms: mean(|run| run.ttft_p90_ms),
        ttft_p99_ms: mean(|run| run.ttft_p99_ms),
        tpot_p50_ms: mean(|run| run.tpot_p50_ms),
        tpot_p90_ms: mean(|run| run.tpot_p90_ms),
        tpot_p99_ms: mean(|run| run.tpot_p99_ms),
        e2e_p50_ms: mean(|run| run.e2e_p50_ms),
        e2e_p90_ms: mean(|run| run.e2e_p90_ms),
        e2e_p99_ms: mean(|run| run.e2e_p99_ms),
        requests: sum(|run| run.requests),
        requests_per_s: mean(|run| run.requests_per_s),
        prompt_tokens_per_s: mean(|run| run.prompt_tokens_per_s),
        output_tokens_per_s: mean(|run| run.output_tokens_per_s),
        queries_tokens: sum(|run| run.queries_tokens),
        hits_tokens: sum(|run| run.hits_tokens),
        external_hits_tokens: sum(|run| run.external_hits_tokens),
        mean_concurrency: mean(|run| run.mean_concurrency),
        steps: runs.iter().fold(StepFigures::default(), |sum, run| sum.plus(&run.steps)),
        prefill_steps: steps_of_role(runs, |run| run.prefill_steps.as_ref()),
        decode_steps: steps_of_role(runs, |run| run.decode_steps.as_ref()),
    }
}

fn steps_of_role(runs: &[Measured], of: fn(&Measured) -> Option<&StepFigures>) -> Option<StepFigures> {
    runs.iter().filter_map(of).fold(None, |sum, steps| Some(sum.unwrap_or_default().plus(steps)))
}
