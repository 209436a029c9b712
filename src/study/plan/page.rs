//! `report.html` of a plan: what to rent and why, at a glance, and everything else below it.

use maud::{Markup, html};

use super::cluster_line::cluster_line;
use super::plot;
use super::recommend::{Alternative, Recommendation};
use super::result::{Capacity, Outcome, PlanResult};
use super::table::{EXTRAPOLATED, candidate_name, load_text, outcome_text, rate_unit};
use crate::chart::{Table, number};
use crate::page::{Headline, Page, Section, count, definitions, figures, percent, sortable, table};
use crate::study::sweep::{labels, shorten, value};

/// A command breaks where it is too long for the screen.
const STYLE: &str = "pre.command{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid var(--grid);\
                     border-radius:10px;background:var(--surface)}
pre.command+p{margin-top:16px}
section>.scroll+p.muted{margin-top:10px}";

pub(super) fn page(result: &PlanResult) -> String {
    let recommended = result.recommendation.as_ref().and_then(|recommendation| {
        Some((recommendation, result.candidates[recommendation.candidate].capacity()?))
    });
    let mut sections = Vec::new();
    if let Some((recommendation, capacity)) = recommended {
        sections.push(decision(result, recommendation, capacity));
        sections.push(how_to_start(capacity));
    }
    sections.push(Section::new("targets", "What users are promised", targets(result, recommended)));
    if recommended.is_some() {
        let plots: Vec<_> =
            [plot::cost_and_latency(result), plot::cost_over_load(result)].into_iter().flatten().collect();
        sections.push(Section::new("cost", "Cost, latency and load", figures(&plots)));
        sections.push(Section::new("routers", "Fleets that were simulated", fleets(result)));
    }
    sections.push(Section::new("candidates", "All candidates", candidates(result)));
    sections.push(Section::new("files", "Files", files()));
    let page = Page {
        kind: "plan",
        title: result.name.clone(),
        about: html! {
            @if !result.description.is_empty() { p { (result.description) } }
            p {
                "For " (load_text(result)) ", with " (number(100.0 * result.settings.headroom))
                " % headroom and " (lost(result)) " to lose."
            }
        },
        notice: notice(result, recommended.map(|it| it.1)),
        headlines: recommended.map_or_else(Vec::new, |it| headlines(result, it.0, it.1)),
        sections,
    };
    page.html()
}

fn lost(result: &PlanResult) -> String {
    match result.settings.lost_replicas {
        0 => "no replica".to_owned(),
        1 => "one replica".to_owned(),
        more => format!("{more} replicas"),
    }
}

fn notice(result: &PlanResult, recommended: Option<&Capacity>) -> Option<String> {
    match recommended {
        None => Some(
            "No candidate meets the targets. The table of candidates says what each of them misses; add faster \
             GPUs or more ranks, or promise less."
                .to_owned(),
        ),
        Some(capacity) if capacity.extrapolated > EXTRAPOLATED => Some(format!(
            "The recommended fleet is extrapolated: {} of its GPU time is in steps beyond what was measured for \
             its cost profile.",
            percent(capacity.extrapolated)
        )),
        Some(_) => {
            let cannot = |outcome: &Outcome| matches!(outcome, Outcome::CannotRun(_));
            let failed = result.candidates.iter().filter(|candidate| cannot(&candidate.outcome)).count();
            (failed > 0).then(|| format!("{failed} of {} candidates cannot run.", result.candidates.len()))
        }
    }
}

fn headlines(result: &PlanResult, recommendation: &Recommendation, capacity: &Capacity) -> Vec<Headline> {
    let fleet = &capacity.fleet;
    let headline = |name: &str, value: String, unit: &str, note: String| Headline {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        note,
    };
    let rate = result.rate.map_or(1.0, |(_, rate)| rate);
    let replicas = if fleet.replicas == 1 { "replica" } else { "replicas" };
    let other = |name: &str, option: &Option<Alternative>| match option {
        None => headline(name, "none".to_owned(), "", String::new()),
        Some(it) => headline(
            name,
            format!("{:.2}", it.cost_per_hour),
            "per hour",
            format!("{} × {}; gives up: {}", it.size, candidate_name(result, it.candidate), gives_up(it)),
        ),
    };
    let gpus = if fleet.gpus == 1 { "GPU" } else { "GPUs" };
    vec![
        headline(
            "Rent",
            fleet.size().to_string(),
            replicas,
            format!("{} {gpus}: {}", fleet.gpus, candidate_name(result, recommendation.candidate)),
        ),
        headline(
            "Cost",
            format!("{:.2}", fleet.cost_per_hour),
            "per hour",
            format!("{:.3} per million output tokens", fleet.cost_per_million_output_tokens),
        ),
        headline(
            &result.latency_name(),
            number(result.latency_ms(capacity)),
            "ms",
            format!("TPOT p90 {} ms", number(capacity.at_load.measured.tpot_p90_ms)),
        ),
        headline("Bound by", capacity.binding.name().to_owned(), "", capacity.binding_because.clone()),
        headline(
            if fleet.prefill_replicas.is_some() { "Its pools take" } else { "A replica takes" },
            number(capacity.highest.load * rate),
            &rate_unit(result),
            capacity.too_much.as_ref().map_or_else(
                || "and any load that was tried".to_owned(),
                |too_much| format!("and not {}", number(too_much.load * rate)),
            ),
        ),
        headline(
            "Hit rate",
            format!("{:.1}", 100.0 * capacity.at_load.measured.hit_rate()),
            "%",
            capacity.router().map_or_else(String::new, |it| format!("behind {}", result.router_name(it))),
        ),
        other("Next cheaper", &recommendation.next_cheaper),
        other("Next faster", &recommendation.next_faster),
    ]
}

fn gives_up(option: &Alternative) -> String {
    option.gives_up.clone().unwrap_or_else(|| "money".to_owned())
}

fn decision(result: &PlanResult, recommendation: &Recommendation, capacity: &Capacity) -> Section {
    let counts = capacity.fleet.counts;
    let latency = format!("{} ms", result.latency_name());
    let mut options = Table::new(3, &["", "fleet", "gives up", "replicas", "cost per hour", &latency]);
    options.push([
        "recommended".to_owned(),
        candidate_name(result, recommendation.candidate),
        "nothing".to_owned(),
        capacity.fleet.size().to_string(),
        format!("{:.2}", capacity.fleet.cost_per_hour),
        number(result.latency_ms(capacity)),
    ]);
    for (title, option) in
        [("next cheaper", &recommendation.next_cheaper), ("next faster", &recommendation.next_faster)]
    {
        let Some(it) = option else {
            let nothing = "there is none".to_owned();
            options.push([
                title.to_owned(),
                nothing,
                String::new(),
                String::new(),
                String::new(),
                String::new(),
            ]);
            continue;
        };
        let up_to = if it.gives_up.is_some() { "up to " } else { "" };
        let simulated = if it.is_simulated { "" } else { " (not simulated as a fleet)" };
        options.push([
            title.to_owned(),
            candidate_name(result, it.candidate) + simulated,
            gives_up(it),
            it.size.to_string(),
            format!("{:.2}", it.cost_per_hour),
            format!("{up_to}{}", number(it.latency_ms)),
        ]);
    }
    Section::new(
        "decision",
        "What else there is",
        html! {
            (table(&options))
            p.muted {
                "The load alone takes " (counts.at_least) ", with headroom " (counts.with_headroom)
                ", and with " (lost(result)) " to lose " (counts.with_losses) ": the larger of the last two counts."
            }
        },
    )
}

fn how_to_start(capacity: &Capacity) -> Section {
    Section {
        style: STYLE,
        ..Section::new(
            "command",
            "How to start it",
            html! {
                p { (if capacity.fleet.prefill_replicas.is_some() { "Each replica, by its role:" } else { "Each replica:" }) }
                pre.command tabindex="0" { (capacity.command) }
                @if let Some(line) = cluster_line(capacity) {
                    p { "The router, as the section of a scenario that " code { "kvsim run" } " simulates:" }
                    pre.command tabindex="0" { (line) }
                }
                @if !capacity.notes.is_empty() {
                    ul.notes { @for note in &capacity.notes { li { (note) } } }
                }
            },
        )
    }
}

fn targets(result: &PlanResult, recommended: Option<(&Recommendation, &Capacity)>) -> Markup {
    let Some((_, capacity)) = recommended else {
        let rows: Vec<(&str, String)> =
            result.settings.targets.iter().map(|target| ("promised", target.to_string())).collect();
        return definitions(&rows);
    };
    let mut rows = Table::new(
        1,
        &["promised", "at the load", "share that keeps it", "of", "with headroom", "with losses"],
    );
    for (index, target) in result.settings.targets.iter().enumerate() {
        let measured = &capacity.at_load.measured;
        let share = measured.shares[index];
        let value = |look: &super::result::LoadResult| {
            look.measured.values_ms[index].map_or_else(
                || percent(look.measured.shares[index].value().unwrap_or(0.0)),
                |ms| format!("{} ms", number(ms)),
            )
        };
        let check = capacity.check();
        rows.push([
            target.to_string(),
            value(&capacity.at_load),
            percent(share.value().unwrap_or(0.0)),
            count(share.of),
            check.map_or_else(String::new, |check| value(&check.with_headroom)),
            check.map_or_else(String::new, |check| value(&check.at_least)),
        ]);
    }
    html! {
        (table(&rows))
        p.muted {
            "With headroom: the fewest replicas that take it. With losses: the fewest that take the load, which is "
            "what is left."
        }
    }
}

/// Each simulated candidate behind each router.
fn fleets(result: &PlanResult) -> Markup {
    let latency = format!("{} ms", result.latency_name());
    let mut rows = Table::new(
        3,
        &["", "candidate", "router", "replicas", "cost per hour", &latency, "hit rate", "GPU busy"],
    );
    for (index, candidate) in result.candidates.iter().enumerate() {
        let Some(capacity) = candidate.capacity() else { continue };
        for check in &capacity.verified {
            let size = check.counts.size();
            let router =
                if size.replicas == 1 { "–".to_owned() } else { result.router_name(&check.router) };
            let measured = &check.at_load.measured;
            let best = if capacity.check().is_some_and(|best| best == check) { "best" } else { "" };
            rows.push([
                best.to_owned(),
                candidate_name(result, index),
                router,
                if check.is_enough { size.to_string() } else { format!("over {size}") },
                format!("{:.2}", capacity.fleet.cost_of(size)),
                number(result.latency_at_ms(&check.at_load)),
                percent(measured.hit_rate()),
                percent(measured.steps.gpu_busy()),
            ]);
        }
    }
    let reach = 100.0 * result.settings.reach;
    html! {
        p {
            "Candidates on the front of cost and latency, and those that cost at most " (number(reach))
            " % more than a fleet that is as fast. The others' figures follow from one replica alone."
        }
        (sortable(&rows))
    }
}

fn candidates(result: &PlanResult) -> Markup {
    let fields: Vec<&str> = result.fields.iter().map(String::as_str).collect();
    let mut head = vec![String::new(), "candidate".to_owned()];
    head.extend(labels(&fields));
    head.extend(["", "bound by"].map(str::to_owned));
    let text_columns = head.len();
    head.extend([
        format!("{} per replica", rate_unit(result)),
        "replicas".to_owned(),
        "GPUs".to_owned(),
        "cost per hour".to_owned(),
        format!("{} ms", result.latency_name()),
        "hit rate".to_owned(),
        "extrapolated".to_owned(),
    ]);
    let num_cells = head.len();
    let mut rows = Table { head, rows: Vec::new(), text_columns };
    let rate = result.rate.map_or(1.0, |(_, rate)| rate);
    for (index, candidate) in result.candidates.iter().enumerate() {
        let is_recommended = result.recommendation.as_ref().is_some_and(|it| it.candidate == index);
        let mark = match (is_recommended, candidate.is_on_front) {
            (true, _) => "recommended",
            (false, true) => "on the front",
            (false, false) => "",
        };
        let mut row = vec![index.to_string(), candidate.name.clone().unwrap_or_default()];
        row.extend(fields.iter().map(|field| shorten(value(candidate.fields.get(*field)))));
        match candidate.capacity() {
            None => row.push("meets no target".to_owned()),
            Some(capacity) => {
                let measured = &capacity.at_load.measured;
                let how = if capacity.verified.is_empty() { "one replica simulated" } else { mark };
                row.extend([how.to_owned(), capacity.binding.name().to_owned()]);
                row.extend([
                    number(capacity.highest.load * rate),
                    capacity.fleet.size().to_string(),
                    capacity.fleet.gpus.to_string(),
                    format!("{:.2}", capacity.fleet.cost_per_hour),
                    number(result.latency_ms(capacity)),
                    percent(measured.hit_rate()),
                    if capacity.extrapolated > EXTRAPOLATED {
                        percent(capacity.extrapolated)
                    } else {
                        "no".to_owned()
                    },
                ]);
            }
        }
        row.resize(num_cells, String::new());
        rows.push(row);
    }
    let why: Vec<String> = (0..result.candidates.len())
        .filter(|&index| !matches!(result.candidates[index].outcome, Outcome::Meets(_)))
        .filter_map(|index| outcome_text(result, index))
        .collect();
    html! {
        (sortable(&rows))
        @if !why.is_empty() { ul.notes { @for line in &why { li { (line) } } } }
        p.muted {
            "Extrapolated: the share of GPU time in steps with more tokens or longer contexts than were measured for "
            "the cost profile, where it is over " (percent(EXTRAPOLATED)) "."
        }
    }
}

fn files() -> Markup {
    html! {
        p { "Beside this page, in the same folder:" }
        dl.definitions.files {
            @for (name, holds) in [
                ("candidates.csv", "a row for each candidate"),
                ("plan.json", "all of it"),
                ("plan.svg", "cost against latency"),
            ] {
                div { dt { a href=(name) { (name) } } dd { (holds) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::study::plan::tests::{ONE_AT_A_TIME, run};

    #[test]
    fn a_page_says_what_to_rent_and_how() {
        let result = run(&format!("{ONE_AT_A_TIME}description: \"<script>alert(1)</script>\"\n"));
        let html = super::page(&result);
        assert_eq!(html.matches("<script>").count(), 1);
        assert!(html.contains("vllm serve meta-llama/Llama-3.1-8B"), "the command");
        assert!(html.contains("cluster: {replicas: 5, router: {policy: round_robin}}"), "the fleet");
        assert!(html.contains("next cheaper") && html.contains("max_num_seqs"));
        assert_eq!(html, super::page(&result));
    }

    #[test]
    fn a_page_without_a_fleet_says_what_is_missed() {
        let result = run(&ONE_AT_A_TIME.replace("at_most_ms: 100", "at_most_ms: 40"));
        let html = super::page(&result);
        assert!(html.contains("No candidate meets the targets"));
        assert!(html.contains("TTFT p90 &lt;= 40 ms is 50 ms"), "what it misses");
    }
}
