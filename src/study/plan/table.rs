//! A plan for the terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::cluster_line::cluster_line;
use super::decision::{Verdict, fewest_requests};
use super::recommend::Alternative;
use super::result::{CandidateResult, Capacity, FleetCheck, LoadResult, Outcome, PlanResult};
use crate::chart::number;
use crate::simulation::Endpoints;
use crate::study::sweep::{labels, shorten, value};

/// Steps beyond what was measured are mentioned from this share of the GPU's time on.
pub(super) const EXTRAPOLATED: f64 = 0.01;

/// What is planned for, the candidates, and the recommended one.
pub fn terminal_text(result: &PlanResult) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, result);
    text
}

fn write_all(text: &mut String, result: &PlanResult) -> std::fmt::Result {
    let settings = &result.settings;
    writeln!(text, "load     {}", load_text(result))?;
    for (index, target) in settings.targets.iter().enumerate() {
        writeln!(text, "{} {target}", if index == 0 { "targets " } else { "        " })?;
    }
    writeln!(
        text,
        "fleets   with {:.0} % headroom, and enough when {} {} lost",
        100.0 * settings.headroom,
        settings.lost_replicas,
        if settings.lost_replicas == 1 { "replica is" } else { "replicas are" }
    )?;
    writeln!(text, "\n{}\n", table(result))?;
    for index in 0..result.candidates.len() {
        if let Some(line) = outcome_text(result, index) {
            writeln!(text, "{line}")?;
        }
    }
    recommendation(text, result)
}

/// What is planned for.
pub(super) fn load_text(result: &PlanResult) -> String {
    result.rate.map_or_else(
        || "the scenario's traffic".to_owned(),
        |(field, rate)| format!("{} {}/s", number(rate), field.trim_end_matches("_per_s")),
    )
}

/// What loads are counted in.
pub(super) fn rate_unit(result: &PlanResult) -> String {
    result.rate.map_or_else(|| "times the load".to_owned(), |(field, _)| field.replace("_per_s", "/s"))
}

/// What has to be said of a candidate beside its figures.
pub(super) fn outcome_text(result: &PlanResult, index: usize) -> Option<String> {
    let name = candidate_name(result, index);
    match &result.candidates[index].outcome {
        Outcome::CannotRun(error) => Some(format!("{name} cannot run: {error}")),
        Outcome::MeetsNoLoad(lowest) if lowest.verdict == Verdict::Missed => {
            Some(format!("{name} meets no load: {}", why_not(result, lowest)))
        }
        Outcome::MeetsNoLoad(lowest) => {
            Some(format!("{name} was not shown to meet any load: {}", why_not(result, lowest)))
        }
        Outcome::FleetMisses(check) => {
            let missed = check.missed().unwrap_or(&check.at_load);
            Some(format!(
                "{name} meets the targets on one replica, but not on {} behind {}: {}",
                check.counts.size(),
                result.router_name(&check.router),
                why_not(result, missed)
            ))
        }
        Outcome::Meets(capacity) => (capacity.extrapolated > EXTRAPOLATED).then(|| {
            format!(
                "{name} is extrapolated: {:.0} % of its GPU time is beyond what was measured for its cost profile",
                100.0 * capacity.extrapolated
            )
        }),
    }
}

fn table(result: &PlanResult) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let fields: Vec<&str> = result.fields.iter().map(String::as_str).collect();
    let has_names = result.candidates.iter().any(|candidate| candidate.name.is_some());
    let mut heads = vec![String::new()];
    heads.extend(has_names.then(|| "name".to_owned()));
    heads.extend(labels(&fields));
    let numbers_from = heads.len();
    let rate = result.rate.map_or("x load", |(field, _)| field);
    heads.push(format!("{}/replica", rate.replace("_per_s", "/s")));
    heads.extend(["replicas", "GPUs", "cost/h", "per 1M out"].map(str::to_owned));
    heads.extend([
        result.latency_name() + " ms",
        "hit rate".to_owned(),
        "router".to_owned(),
        "bound by".to_owned(),
    ]);
    let num_cells = heads.len();
    table.add_row(heads);
    for (index, candidate) in result.candidates.iter().enumerate() {
        let mut row = vec![format!("{index}{}", mark(result, index, candidate))];
        row.extend(has_names.then(|| candidate.name.clone().unwrap_or_default()));
        row.extend(fields.iter().map(|field| shorten(value(candidate.fields.get(*field)))));
        match &candidate.outcome {
            Outcome::Meets(capacity) => row.extend(figures(result, capacity)),
            Outcome::MeetsNoLoad(lowest) if lowest.verdict == Verdict::Open => {
                row.push("not known".to_owned())
            }
            Outcome::MeetsNoLoad(_) => row.push("none".to_owned()),
            Outcome::FleetMisses(_) => row.push("no fleet".to_owned()),
            Outcome::CannotRun(_) => row.push("cannot run".to_owned()),
        }
        row.resize(num_cells, String::new());
        table.add_row(row);
    }
    for column in numbers_from..num_cells - 2 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut legend = "* recommended, + on the front of cost and latency".to_owned();
    if result.has_roles() {
        legend += "; P prefill, D decode: a load per replica is that of the pools as the candidate has them";
    }
    format!("{}\n{legend}", table.trim_fmt())
}

fn mark(result: &PlanResult, index: usize, candidate: &CandidateResult) -> &'static str {
    let is_recommended = result.recommendation.as_ref().is_some_and(|it| it.candidate == index);
    match (is_recommended, candidate.is_on_front) {
        (true, _) => " *",
        (false, true) => " +",
        (false, false) => "",
    }
}

fn figures(result: &PlanResult, capacity: &Capacity) -> Vec<String> {
    let fleet = &capacity.fleet;
    let rate = result.rate.map_or(1.0, |(_, rate)| rate);
    let no_limit = if capacity.too_much.is_none() { ">" } else { "" };
    vec![
        format!("{no_limit}{}", number(capacity.highest.load * rate)),
        fleet.size().to_string(),
        fleet.gpus.to_string(),
        format!("{:.2}", fleet.cost_per_hour),
        format!("{:.3}", fleet.cost_per_million_output_tokens),
        number(result.latency_ms(capacity)),
        format!("{:.1} %", 100.0 * capacity.at_load.measured.hit_rate()),
        match capacity.router() {
            Some(router) => result.router_name(router),
            None if capacity.verified.is_empty() => "not simulated".to_owned(),
            None => String::new(),
        },
        capacity.binding.name().to_owned(),
    ]
}

/// A candidate by its name or number, with what it differs in.
pub(super) fn candidate_name(result: &PlanResult, index: usize) -> String {
    let candidate = &result.candidates[index];
    if let Some(name) = &candidate.name {
        return name.clone();
    }
    let fields: Vec<&str> = result.fields.iter().map(String::as_str).collect();
    let parts = fields.iter().zip(labels(&fields)).filter_map(|(field, label)| {
        Some(format!("{label} {}", shorten(value(Some(candidate.fields.get(*field)?)))))
    });
    let parts = parts.collect::<Vec<_>>().join(", ");
    if parts.is_empty() { format!("candidate {index}") } else { format!("candidate {index} ({parts})") }
}

/// What a load misses.
fn why_not(result: &PlanResult, look: &LoadResult) -> String {
    let mut parts = Vec::new();
    for (index, target) in result.settings.targets.iter().enumerate() {
        let share = look.measured.shares[index];
        let is = match look.measured.values_ms[index] {
            Some(ms) => format!("{} ms", number(ms)),
            None => format!("{} of {} requests", share.kept, share.of),
        };
        match look.verdicts[index] {
            Verdict::Missed => parts.push(format!("{target} is {is}")),
            Verdict::Open => {
                let fewest = fewest_requests(target.share, result.settings.confidence);
                let of = if target.is_of_gaps() { "gaps" } else { "requests" };
                parts.push(if share.of < fewest {
                    format!(
                        "{target} cannot be told: {} runs have {} {of}, and it takes {fewest}; make the scenario \
                         longer or `max_replications` larger",
                        look.replications, share.of
                    )
                } else {
                    format!("{target} is {is} and not sure after {} runs with {} {of}", look.replications, share.of)
                });
            }
            Verdict::Met => {}
        }
    }
    let rate = result.rate.map_or_else(
        || format!("{} times the load", number(look.load)),
        |(field, rate)| format!("{} {}/s", number(look.load * rate), field.trim_end_matches("_per_s")),
    );
    format!("at {rate} {}", parts.join(", "))
}

fn recommendation(text: &mut String, result: &PlanResult) -> std::fmt::Result {
    let Some(recommendation) = &result.recommendation else {
        return writeln!(
            text,
            "No candidate meets the targets. Add faster GPUs or more ranks (`grid: {{engine.tensor_parallel_size: \
             [2, 4]}}`), or promise less."
        );
    };
    let index = recommendation.candidate;
    let Some(capacity) = result.candidates[index].capacity() else { return Ok(()) };
    let fleet = &capacity.fleet;
    let rate = result.rate.map_or(1.0, |(_, rate)| rate);
    writeln!(
        text,
        "recommended  {} x {}: {:.2} per hour",
        fleet.size(),
        candidate_name(result, index),
        fleet.cost_per_hour
    )?;
    writeln!(
        text,
        "cost         for a million tokens of input {:.3}, of output {:.3}, of both {:.3}",
        fleet.cost_per_million_input_tokens,
        fleet.cost_per_million_output_tokens,
        fleet.cost_per_million_tokens
    )?;
    for check in &capacity.verified {
        writeln!(text, "simulated    {}", fleet_text(result, check))?;
    }
    writeln!(
        text,
        "replicas     {} for the load, {} with headroom, {} with {} to lose",
        fleet.counts.at_least,
        fleet.counts.with_headroom,
        fleet.counts.with_losses,
        result.settings.lost_replicas
    )?;
    let unit = rate_unit(result);
    let a_unit = if fleet.prefill_replicas.is_some() { "its pools   " } else { "a replica   " };
    let takes = if fleet.prefill_replicas.is_some() { "take" } else { "takes" };
    match &capacity.too_much {
        Some(too_much) => writeln!(
            text,
            "{a_unit} {takes} {} {unit} ({:.0} % confidence) and not {}: {}",
            number(capacity.highest.load * rate),
            100.0 * result.settings.confidence,
            number(too_much.load * rate),
            capacity
                .binding_targets
                .iter()
                .map(|&index| result.settings.targets[index].to_string())
                .collect::<Vec<_>>()
                .join(", ")
        )?,
        None => writeln!(text, "{a_unit} {takes} any load that was tried")?,
    }
    writeln!(text, "bound by     {}: {}", capacity.binding.name(), capacity.binding_because)?;
    let measured = &capacity.at_load.measured;
    writeln!(
        text,
        "at the load  TTFT p50 {} p90 {} p99 {}, TPOT p50 {} p90 {} p99 {} ms, hit rate {:.1} %, KV cache {:.0} % \
         in use, GPU busy {:.0} %",
        number(measured.ttft_p50_ms),
        number(measured.ttft_p90_ms),
        number(measured.ttft_p99_ms),
        number(measured.tpot_p50_ms),
        number(measured.tpot_p90_ms),
        number(measured.tpot_p99_ms),
        100.0 * measured.hit_rate(),
        100.0 * measured.steps.usage_mean(),
        100.0 * measured.steps.gpu_busy(),
    )?;
    for (title, alternative) in
        [("next cheaper", &recommendation.next_cheaper), ("next faster", &recommendation.next_faster)]
    {
        let what = alternative.as_ref().map_or_else(|| "nothing".to_owned(), |it| option(result, it));
        writeln!(text, "{title:<12} {what}")?;
    }
    for note in &capacity.notes {
        writeln!(text, "note         {note}")?;
    }
    writeln!(text, "\n{}", capacity.command)?;
    match cluster_line(capacity) {
        Some(line) => writeln!(text, "{line}  # in a scenario, to simulate the fleet"),
        None => Ok(()),
    }
}

/// What a fleet does, or misses.
fn fleet_text(result: &PlanResult, check: &FleetCheck) -> String {
    let size = check.counts.size();
    let router = result.router_name(&check.router);
    let fleet = match (size.replicas, check.router.endpoints) {
        (1, Endpoints::Replicas) => "1 replica".to_owned(),
        (1, Endpoints::Ranks) => format!("1 replica, its ranks behind {router}"),
        _ => format!("{} behind {router}", size.words()),
    };
    if let Some(missed) = check.missed() {
        return format!("{fleet} are not enough: {}", why_not(result, missed));
    }
    format!(
        "{fleet}: {} {} ms, hit rate {:.1} %; {} at the load {} ms",
        result.latency_name(),
        number(result.latency_at_ms(&check.at_load)),
        100.0 * check.at_load.measured.hit_rate(),
        check.counts.at_least,
        number(result.latency_at_ms(&check.at_least)),
    )
}

fn option(result: &PlanResult, alternative: &Alternative) -> String {
    let latency = number(alternative.latency_ms);
    let gives_up = match &alternative.gives_up {
        Some(gives_up) => format!("up to {latency} ms, {gives_up}"),
        None => format!("{latency} ms"),
    };
    let simulated = if alternative.is_simulated { "" } else { " (not simulated as a fleet)" };
    format!(
        "{} x {}: {:.2} per hour, {} {gives_up}{simulated}",
        alternative.size,
        candidate_name(result, alternative.candidate),
        alternative.cost_per_hour,
        result.latency_name()
    )
}
