//! What the prefix cache found: over time, by turn, by tenant.

use maud::html;

use super::RunView;
use super::time_axis::TimeAxis;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, tick};
use crate::page::{Section, count, figures, table};
use crate::report::summary::{HitRate, NamedHitRate};
use crate::report::timeseries::{Bin, Timeseries};

pub(super) fn section(view: &RunView<'_>) -> Section {
    let cache = &view.summary.prefix_cache;
    let mut plots = vec![over_time(view)];
    if cache.by_turn.len() > 1 {
        plots.push(by_turn(&cache.by_turn));
    }
    if cache.by_tenant.len() > 1 {
        plots.push(by_tenant(&cache.by_tenant));
    }
    if cache.by_depth.len() > 1 {
        plots.push(by_depth(&cache.by_depth));
    }
    let body = html! {
        (figures(&plots))
        (table(&rates(view)))
    };
    Section::new("cache", "Prefix cache", body)
}

fn per_cent(hits: u64, queries: u64) -> Option<f64> {
    (queries > 0).then(|| 100.0 * hits as f64 / queries as f64)
}

/// Share of looked-up tokens that were found.
pub(super) fn over_time(view: &RunView<'_>) -> Plot {
    let time = TimeAxis::of(view);
    let since_start = since_start(view.series);
    let mut rates = since_start.iter();
    let of_bin = |bin: &Bin| per_cent(bin.hits_tokens, bin.queries_tokens);
    let of_log = |bin: &Bin| per_cent(bin.moving_hits_tokens, bin.moving_queries_tokens);
    let written = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.2}"));
    let mut data = time.table(view, &["each bin, %", "last 1,000, %"], |bin| {
        vec![written(of_bin(bin)), written(of_log(bin))]
    });
    data.head.push("since start, %".to_owned());
    data.rows.iter_mut().zip(&since_start).for_each(|(row, rate)| row.push(written(*rate)));
    Plot {
        title: "Hit rate over time".to_owned(),
        description: "Share of looked-up prompt tokens that were found: in each bin of time, over the last \
                      1,000 requests as in vLLM's log, and since the start as in its counters."
            .to_owned(),
        x: time.axis.clone(),
        y: Axis::exact("hit tokens, %", 0.0, 100.0),
        marks: vec![
            Mark::new(Color::Green, Shape::Line(time.points(view, of_bin))).faint().label("each bin"),
            Mark::new(Color::Orange, Shape::Line(time.points(view, of_log))).label("last 1,000"),
            Mark::new(Color::Blue, Shape::Line(time.points(view, |_| rates.next().copied().flatten())))
                .label("since start"),
        ],
        data,
        nearest: Nearest::X,
        size: Plot::SIZE,
    }
}

/// At the end of each bin.
fn since_start(series: &Timeseries) -> Vec<Option<f64>> {
    let (mut queries, mut hits) = (0, 0);
    let rates = series.bins().iter().map(|bin| {
        queries += bin.queries_tokens;
        hits += bin.hits_tokens;
        per_cent(hits, queries)
    });
    rates.collect()
}

fn by_turn(turns: &[NamedHitRate]) -> Plot {
    let names: Vec<String> = turns.iter().map(|turn| turn.name.replace(" and later", "+")).collect();
    let bar = |(index, turn): (usize, &NamedHitRate)| {
        let at = index as f64;
        (at - 0.36, at + 0.36, 100.0 * turn.rate.hit_rate)
    };
    Plot {
        title: "Hit rate by turn".to_owned(),
        description:
            "Of first admissions, by the turn of the conversation. The first turn is 0: it can only \
                      hit what others share with it."
                .to_owned(),
        x: Axis::names("turn", &names, 16),
        y: Axis::exact("hit tokens, %", 0.0, 100.0),
        marks: vec![Mark::new(Color::Blue, Shape::Bars(turns.iter().enumerate().map(bar).collect()))],
        data: groups("turn", turns),
        nearest: Nearest::Column,
        size: Plot::SIZE,
    }
}

fn by_depth(depths: &[NamedHitRate]) -> Plot {
    // The begin is enough of a range.
    let begin = |depth: &NamedHitRate| depth.name.split('-').next().and_then(|it| it.parse().ok());
    let names: Vec<String> = depths.iter().map(|depth| begin(depth).map_or_else(String::new, tick)).collect();
    let bar = |(index, depth): (usize, &NamedHitRate)| {
        let at = index as f64;
        (at - 0.36, at + 0.36, 100.0 * depth.rate.hit_rate)
    };
    Plot {
        title: "Hit rate by depth in the prompt".to_owned(),
        description:
            "Of the tokens at this place of their prompts. Hits are prefixes, so deeper tokens are hit \
                      less, unless long prompts are hit more than short ones."
                .to_owned(),
        x: Axis::names("from this token on", &names, 16),
        y: Axis::exact("hit tokens, %", 0.0, 100.0),
        marks: vec![Mark::new(Color::Blue, Shape::Bars(depths.iter().enumerate().map(bar).collect()))],
        data: groups("tokens", depths),
        nearest: Nearest::Column,
        size: Plot::SIZE,
    }
}

/// Later ones are in the table.
const MAX_TENANTS: usize = 24;

fn by_tenant(tenants: &[NamedHitRate]) -> Plot {
    let shown = &tenants[..tenants.len().min(MAX_TENANTS)];
    let names: Vec<String> = shown.iter().map(|tenant| shortened(&tenant.name)).collect();
    let row = |(index, tenant): (usize, &NamedHitRate)| {
        let at = index as f64;
        (at - 0.34, at + 0.34, 100.0 * tenant.rate.hit_rate)
    };
    Plot {
        title: "Hit rate by tenant".to_owned(),
        description: "Of first admissions. Tenants share nothing but what their prompts have in common."
            .to_owned(),
        x: Axis::exact("hit tokens, %", 0.0, 100.0),
        y: Axis::names("", &names, MAX_TENANTS).downwards(),
        marks: vec![Mark::new(Color::Blue, Shape::Rows(shown.iter().enumerate().map(row).collect()))],
        data: groups("tenant", tenants),
        nearest: Nearest::Row,
        size: (Plot::WIDTH, 60 + 30 * shown.len() as u32),
    }
}

/// So that bars find room beside it.
pub(super) fn shortened(name: &str) -> String {
    const MOST: usize = 22;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

fn groups(name: &str, groups: &[NamedHitRate]) -> Table {
    let mut table = Table::new(1, &[name, "requests", "looked up, tokens", "hit, tokens", "hit rate, %"]);
    for group in groups {
        let rate = &group.rate;
        table.push([
            group.name.clone(),
            count(group.requests),
            count(rate.queries_tokens),
            count(rate.hits_tokens),
            format!("{:.2}", 100.0 * rate.hit_rate),
        ]);
    }
    table
}

/// All hit rates of the run.
fn rates(view: &RunView<'_>) -> Table {
    let cache = &view.summary.prefix_cache;
    let mut table = Table::new(1, &["hit rates", "looked up, tokens", "hit, tokens", "hit rate, %"]);
    let mut push = |name: &str, rate: &HitRate| {
        table.push([
            name.to_owned(),
            count(rate.queries_tokens),
            count(rate.hits_tokens),
            format!("{:.2}", 100.0 * rate.hit_rate),
        ]);
    };
    push("first admissions (vLLM's counters)", &cache.total);
    push("last 1,000 requests (vLLM's log)", &cache.moving_last_1000_requests);
    push("after a preemption", &cache.preempted);
    if let Some(external) = &view.summary.external_cache {
        push("behind the GPU's cache", &external.total);
        push("behind it, after a preemption", &external.preempted);
    }
    table
}
