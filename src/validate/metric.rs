//! The figures that a simulation and a measurement can both have.

use serde::{Deserialize, Serialize};

/// A figure of a run. Latencies are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    TtftMeanMs,
    TtftP50Ms,
    TtftP90Ms,
    TtftP95Ms,
    TtftP99Ms,
    TpotMeanMs,
    TpotP50Ms,
    TpotP90Ms,
    TpotP99Ms,
    ItlMeanMs,
    E2eMeanMs,
    E2eP50Ms,
    E2eP90Ms,
    E2eP99Ms,
    OutputTokS,
    RequestsS,
    MakespanS,
    /// Share of looked-up prompt tokens that were found, 0 to 1.
    HitRate,
    NumGpuBlocks,
}

impl Metric {
    pub const ALL: [Self; 19] = [
        Self::TtftMeanMs,
        Self::TtftP50Ms,
        Self::TtftP90Ms,
        Self::TtftP95Ms,
        Self::TtftP99Ms,
        Self::TpotMeanMs,
        Self::TpotP50Ms,
        Self::TpotP90Ms,
        Self::TpotP99Ms,
        Self::ItlMeanMs,
        Self::E2eMeanMs,
        Self::E2eP50Ms,
        Self::E2eP90Ms,
        Self::E2eP99Ms,
        Self::OutputTokS,
        Self::RequestsS,
        Self::MakespanS,
        Self::HitRate,
        Self::NumGpuBlocks,
    ];

    /// As in the columns of tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TtftMeanMs => "ttft_mean_ms",
            Self::TtftP50Ms => "ttft_p50_ms",
            Self::TtftP90Ms => "ttft_p90_ms",
            Self::TtftP95Ms => "ttft_p95_ms",
            Self::TtftP99Ms => "ttft_p99_ms",
            Self::TpotMeanMs => "tpot_mean_ms",
            Self::TpotP50Ms => "tpot_p50_ms",
            Self::TpotP90Ms => "tpot_p90_ms",
            Self::TpotP99Ms => "tpot_p99_ms",
            Self::ItlMeanMs => "itl_mean_ms",
            Self::E2eMeanMs => "e2e_mean_ms",
            Self::E2eP50Ms => "e2e_p50_ms",
            Self::E2eP90Ms => "e2e_p90_ms",
            Self::E2eP99Ms => "e2e_p99_ms",
            Self::OutputTokS => "output_tok_s",
            Self::RequestsS => "requests_s",
            Self::MakespanS => "makespan_s",
            Self::HitRate => "hit_rate",
            Self::NumGpuBlocks => "num_gpu_blocks",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
    }
}
