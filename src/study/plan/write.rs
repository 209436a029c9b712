//! The files of a plan.

use std::path::Path;

use super::PlanError;
use super::page::page;
use super::plot;
use super::result::{Outcome, PlanResult};
use crate::report::json::pretty;
use crate::study::journal::write_whole;

/// What a finished plan writes beside its journal.
pub(super) const RESULTS: [&str; 4] = ["candidates.csv", "plan.json", "plan.svg", "report.html"];

impl PlanResult {
    /// Writes tables, the plot and the page.
    pub(super) fn write(&self, folder: &Path) -> Result<(), PlanError> {
        write_whole(&folder.join("candidates.csv"), self.candidates_csv().as_bytes())?;
        write_whole(&folder.join("plan.svg"), plot::file(self).as_bytes())?;
        write_whole(&folder.join("report.html"), page(self).as_bytes())?;
        write_whole(&folder.join("plan.json"), pretty(self).as_bytes())?;
        Ok(())
    }

    /// A line for each candidate; cells are empty where it meets no load.
    fn candidates_csv(&self) -> String {
        let mut csv = csv::Writer::from_writer(Vec::new());
        let mut heads: Vec<String> = vec!["candidate".into(), "name".into()];
        heads.extend(self.fields.iter().cloned());
        heads.extend(
            [
                "meets_targets",
                "load_of_a_replica",
                "load_that_is_too_much",
                "requests_per_s_of_a_replica",
                "bound_by",
                "replicas_at_least",
                "replicas_with_headroom",
                "replicas_with_losses",
                "replicas",
                "prefill_replicas",
                "gpus",
                "cost_per_hour",
                "cost_per_million_input_tokens",
                "cost_per_million_output_tokens",
                "cost_per_million_tokens",
                "ttft_p90_ms",
                "tpot_p90_ms",
                "e2e_p90_ms",
                "hit_rate",
                "kv_cache_usage_mean",
                "gpu_busy",
                "extrapolated",
                "router",
                "is_verified",
                "is_on_front",
                "is_recommended",
                "error",
            ]
            .map(str::to_owned),
        );
        let num_cells = heads.len();
        // Writing to memory cannot fail, and all rows are of one length.
        let _ = csv.write_record(&heads);
        for (index, candidate) in self.candidates.iter().enumerate() {
            let mut row = vec![index.to_string(), candidate.name.clone().unwrap_or_default()];
            row.extend(self.fields.iter().map(|field| match candidate.fields.get(field) {
                None => String::new(),
                Some(serde_json::Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            }));
            let error = match &candidate.outcome {
                Outcome::Meets(capacity) => {
                    let (fleet, measured) = (&capacity.fleet, &capacity.at_load.measured);
                    let recommended = self.recommendation.as_ref().map(|it| it.candidate) == Some(index);
                    row.extend([
                        "true".to_owned(),
                        capacity.highest.load.to_string(),
                        capacity.too_much.as_ref().map(|it| it.load.to_string()).unwrap_or_default(),
                        capacity.highest.measured.requests_per_s.to_string(),
                        capacity.binding.name().to_owned(),
                        fleet.counts.at_least.replicas.to_string(),
                        fleet.counts.with_headroom.replicas.to_string(),
                        fleet.counts.with_losses.replicas.to_string(),
                        fleet.replicas.to_string(),
                        fleet.prefill_replicas.map(|it| it.to_string()).unwrap_or_default(),
                        fleet.gpus.to_string(),
                        fleet.cost_per_hour.to_string(),
                        fleet.cost_per_million_input_tokens.to_string(),
                        fleet.cost_per_million_output_tokens.to_string(),
                        fleet.cost_per_million_tokens.to_string(),
                        measured.ttft_p90_ms.to_string(),
                        measured.tpot_p90_ms.to_string(),
                        measured.e2e_p90_ms.to_string(),
                        measured.hit_rate().to_string(),
                        measured.steps.usage_mean().to_string(),
                        measured.steps.gpu_busy().to_string(),
                        capacity.extrapolated.to_string(),
                        capacity.router().map(|it| self.router_name(it)).unwrap_or_default(),
                        (!capacity.verified.is_empty()).to_string(),
                        candidate.is_on_front.to_string(),
                        recommended.to_string(),
                    ]);
                    String::new()
                }
                Outcome::MeetsNoLoad(_) | Outcome::FleetMisses(_) => {
                    row.push("false".to_owned());
                    String::new()
                }
                Outcome::CannotRun(error) => error.clone(),
            };
            row.resize(num_cells - 1, String::new());
            row.push(error);
            let _ = csv.write_record(&row);
        }
        String::from_utf8(csv.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}
