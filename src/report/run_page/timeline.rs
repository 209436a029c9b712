//! The steps of the host and of the GPU along time, to look into, and a table of the slowest.

use std::fmt::Write;

use maud::{PreEscaped, html};

use super::RunView;
use crate::chart::Table;
use crate::page::{Section, count, table};
use crate::report::json::list;
use crate::report::step_timeline::{NUM_SLOWEST, ReplicaSteps};

pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let replicas = &view.timeline.replicas;
    if replicas.iter().all(|replica| replica.bars.is_empty()) {
        return None;
    }
    let most = replicas.iter().map(|replica| replica.steps_in_bar).max().unwrap_or(1);
    let grain = match most {
        1 => "Each bar is a step.".to_owned(),
        most => format!("There are many steps: each bar is up to {} of them.", count(most)),
    };
    let body = html! {
        // The script fills it; without, there is the table.
        div #timeline-player.card data-grain=(grain) hidden {}
        details.timeline-slowest {
            summary { "The slowest steps" }
            (table(&slowest(view)))
        }
        script type="application/json" id="timeline-data" { (PreEscaped(json(replicas))) }
    };
    Some(Section {
        style: include_str!("timeline.css"),
        script: include_str!("timeline.js"),
        ..Section::new("timeline", "Step timeline", body)
    })
}

/// Times in nanoseconds, each from the one before where that makes it short.
fn json(replicas: &[ReplicaSteps]) -> String {
    let mut json = String::new();
    list(&mut json, replicas, |json, replica| {
        let _ = write!(json, "{{\"grain\":{},\"bars\":", replica.steps_in_bar);
        let mut before = 0;
        list(json, &replica.bars, |json, bar| {
            let at = bar.scheduled_at.as_ns();
            let _ = write!(
                json,
                "[{},{},{},{},{},{},{},{},{},{},{}]",
                at - before,
                bar.planned_at.as_ns() - at,
                bar.host_ns,
                bar.started_at.as_ns() - at,
                bar.done_at.as_ns() - bar.started_at.as_ns(),
                bar.gpu_ns,
                bar.num_prefill_tokens,
                bar.num_decode_tokens,
                bar.num_requests,
                bar.num_preempted,
                bar.num_steps,
            );
            before = at;
        });
        json.push('}');
    });
    json
}

fn slowest(view: &RunView<'_>) -> Table {
    let fleet = view.info.fleet.as_ref();
    let mut head: Vec<&str> = vec!["step"];
    head.extend(fleet.map(|_| "replica"));
    head.extend([
        "begins, s",
        "GPU, ms",
        "host, ms",
        "requests",
        "prefill tokens",
        "decode tokens",
        "preempted",
    ]);
    let rows = view.timeline.slowest().into_iter().take(NUM_SLOWEST).map(|step| {
        let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
        let mut row = vec![count(step.index)];
        row.extend(fleet.map(|fleet| fleet.replicas[step.replica as usize].to_string()));
        row.extend([
            format!("{:.4}", step.scheduled_at.as_secs_f64()),
            ms(step.gpu_ns),
            ms(step.host_ns),
            count(u64::from(step.num_scheduled_requests)),
            count(u64::from(step.num_prefill_tokens)),
            count(u64::from(step.num_decode_tokens)),
            count(u64::from(step.num_preempted)),
        ]);
        row
    });
    Table { head: head.into_iter().map(str::to_owned).collect(), rows: rows.collect(), text_columns: 0 }
}
