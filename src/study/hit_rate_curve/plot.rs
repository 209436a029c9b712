//! Hit rate over the size of the cache, and over time, turns and depth.

use super::breakdown::{Breakdown, Group};
use super::curve::{BlockSizeCurve, Curve, Point};
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped, sheet, tick};

/// `curve.svg`. The panels below tell of the first block size.
pub(super) fn file(curve: &Curve) -> String {
    let title = format!("{}: prefix cache hit rate over cache size ({})", curve.name, curve.model);
    let mut rows = vec![vec![over_size(curve)]];
    let breakdown = &curve.block_sizes[0].breakdown;
    if !breakdown.time.is_empty() {
        rows.push(vec![over_time(breakdown)]);
        rows.push(by_turn_and_depth(breakdown));
    }
    sheet(&title, &rows)
}

pub(super) fn over_size(curve: &Curve) -> Plot {
    let points = curve.block_sizes.iter().flat_map(|it| &it.points).map(|point| point.cache_gib);
    let simulated = curve.block_sizes.iter().flat_map(|it| &it.simulated).map(|point| point.cache_gib);
    let real = curve.marks.iter().map(|mark| mark.cache_gib);
    let mut sizes: Vec<f64> = points.chain(simulated).chain(real).filter(|&gib| gib > 0.0).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let highest = curve.block_sizes.iter().map(|it| it.infinite.hit_rate).fold(0.0, f64::max);
    let y_max = (100.0 * highest * 1.08).clamp(1.0, 100.0);
    let x = Axis::over("cache size, GiB on all GPUs together", &sizes);
    let mut marks: Vec<Mark> = curve
        .marks
        .iter()
        .filter(|mark| mark.cache_gib > 0.0)
        .map(|mark| {
            let label = format!("{} ({} GiB)", shortened(&mark.label), tick(mark.cache_gib.round()));
            Mark::new(Color::Muted, Shape::At(mark.cache_gib, label)).faint()
        })
        .collect();
    for (index, of_size) in curve.block_sizes.iter().enumerate() {
        marks.extend(marks_of(of_size, Color::series(index), &x));
    }
    let has_runs = curve.block_sizes.iter().any(|it| !it.simulated.is_empty());
    let mut description =
        "A line for each block size; dashed, what a cache without end would find; a triangle at the knee."
            .to_owned();
    if has_runs {
        description += " Rings are full simulations of the engine.";
    }
    Plot {
        title: "Hit rate over the size of the cache".to_owned(),
        description,
        x,
        y: Axis::from_zero("hit tokens, %", y_max),
        marks,
        data: data(curve),
        nearest: Nearest::Point,
        size: (Plot::WIDE, 400),
    }
}

fn marks_of(curve: &BlockSizeCurve, color: Color, x: &Axis) -> Vec<Mark> {
    let drawn: Vec<&Point> = curve.points.iter().filter(|point| point.cache_gib > 0.0).collect();
    let line = drawn.iter().map(|point| (point.cache_gib, 100.0 * point.hit_rate)).collect();
    let intervals = drawn.iter().filter_map(|point| {
        let (rate, half_width) = (100.0 * point.hit_rate, 100.0 * point.hit_rate_half_width?);
        (half_width > 0.0).then(|| (point.cache_gib, (rate - half_width).max(0.0), rate + half_width))
    });
    let runs =
        curve.simulated.iter().filter_map(|it| Some((it.cache_gib, 100.0 * it.run.as_ref()?.hit_rate)));
    let knee = curve.knee.filter(|knee| knee.cache_gib > 0.0);
    let bound = 100.0 * curve.infinite.hit_rate;
    vec![
        Mark::new(color, Shape::Dashed(vec![(x.value_at(0.0), bound), (x.value_at(1.0), bound)])),
        Mark::new(color, Shape::Intervals(intervals.collect())),
        Mark::new(color, Shape::Line(line)).label(format!("{} tokens", curve.shape.block_size_tokens)),
        Mark::new(color, Shape::Rings(runs.collect())),
        Mark::new(
            color,
            Shape::Triangles(knee.iter().map(|knee| (knee.cache_gib, 100.0 * knee.hit_rate)).collect()),
        ),
    ]
}

fn data(curve: &Curve) -> Table {
    let mut table =
        Table::new(0, &["cache, GiB", "hit rate, %", "±", "tokens a block", "tokens in the cache", "what"]);
    for it in &curve.block_sizes {
        let block = it.shape.block_size_tokens.to_string();
        let mut push = |gib: f64, rate: f64, half_width: Option<f64>, tokens: u64, what: &str| {
            table.push([
                grouped(gib),
                format!("{:.2}", 100.0 * rate),
                half_width.map_or_else(|| "–".to_owned(), |it| format!("{:.2}", 100.0 * it)),
                block.clone(),
                grouped(tokens as f64),
                what.to_owned(),
            ]);
        };
        let mut of_point = |point: &Point, what: &str| {
            push(point.cache_gib, point.hit_rate, point.hit_rate_half_width, point.cache_tokens, what);
        };
        it.points.iter().for_each(|point| of_point(point, "one pass"));
        curve.marks.iter().zip(&it.at_marks).for_each(|(mark, point)| of_point(point, &mark.label));
        it.knee.iter().for_each(|point| of_point(point, "knee"));
        of_point(&it.infinite, "without end");
        for point in &it.simulated {
            if let Some(run) = &point.run {
                push(point.cache_gib, run.hit_rate, None, point.cache_tokens, "simulated");
            }
        }
    }
    table
}

pub(super) fn over_time(breakdown: &Breakdown) -> Plot {
    let times: Vec<f64> = breakdown.time.iter().filter_map(|group| group.key.parse().ok()).collect();
    let end = times.last().copied().unwrap_or(0.0) + breakdown.time_bin_s;
    let middle = breakdown.time_bin_s / 2.0;
    let marks = breakdown.sizes.iter().enumerate().map(|(index, size)| {
        let line = times.iter().zip(&breakdown.time).map(|(at, group)| (at + middle, rate(group, index)));
        Mark::new(size_color(index, breakdown), Shape::Line(line.collect())).label(shortened(size))
    });
    Plot {
        title: "Hit rate over time, by cache".to_owned(),
        description: "In each bin of time, of what real machines hold and of a cache without end.".to_owned(),
        x: Axis::exact("time of the request, s", 0.0, end),
        y: Axis::exact("hit tokens, %", 0.0, 100.0),
        marks: marks.collect(),
        data: table("from, s", breakdown, &breakdown.time, 0),
        nearest: Nearest::Span,
        size: (Plot::WIDTH, 300),
    }
}

/// By turn where conversations have several, and by depth in the prompt.
pub(super) fn by_turn_and_depth(breakdown: &Breakdown) -> Vec<Plot> {
    let turns = (breakdown.turn.len() > 1)
        .then(|| over_keys("Hit rate by turn", "The first turn is 0.", "turn", breakdown, &breakdown.turn));
    let depths = over_keys(
        "Hit rate by depth in the prompt",
        "Tokens at this place of their prompts.",
        "depth from, tokens",
        breakdown,
        &breakdown.depth,
    );
    turns.into_iter().chain([depths]).collect()
}

pub(super) fn by_tenant(breakdown: &Breakdown) -> Option<Plot> {
    (breakdown.tenant.len() > 1).then(|| {
        over_keys("Hit rate by tenant", "Each cache in its colour.", "tenant", breakdown, &breakdown.tenant)
    })
}

/// Groups beside each other.
fn over_keys(title: &str, about: &str, name: &str, breakdown: &Breakdown, groups: &[Group]) -> Plot {
    let names: Vec<String> = groups
        .iter()
        // The begin is enough of a range.
        .map(|group| {
            group.key.split('-').next().and_then(|it| it.parse().ok()).map_or_else(|| group.key.clone(), tick)
        })
        .collect();
    let marks = breakdown.sizes.iter().enumerate().flat_map(|(index, size)| {
        let color = size_color(index, breakdown);
        let points: Vec<(f64, f64)> =
            groups.iter().enumerate().map(|(x, group)| (x as f64, rate(group, index))).collect();
        [
            Mark::new(color, Shape::Line(points.clone())).faint(),
            Mark::new(color, Shape::Dots(points)).label(shortened(size)),
        ]
    });
    Plot {
        title: title.to_owned(),
        description: about.to_owned(),
        x: Axis::names(name, &names, 12),
        y: Axis::exact("hit tokens, %", 0.0, 100.0),
        marks: marks.collect(),
        data: table(name, breakdown, groups, 1),
        nearest: Nearest::Column,
        size: (Plot::WIDTH, 280),
    }
}

/// Beside a line there is no room for more.
fn shortened(size: &str) -> String {
    if size == "infinite" {
        return "without end".to_owned();
    }
    // Host memory behind the GPUs that have a mark of their own.
    let (_, more) = size.split_once(" + ").unwrap_or(("", ""));
    match (more, size.strip_prefix("num_gpu_blocks_override ")) {
        ("", Some(blocks)) => format!("{blocks} blocks"),
        ("", None) => size.replace(" x ", " × "),
        (more, _) => format!("with {more}"),
    }
}

fn table(name: &str, breakdown: &Breakdown, groups: &[Group], text_columns: usize) -> Table {
    let mut head = vec![name.to_owned()];
    head.extend(breakdown.sizes.iter().map(|size| format!("{}, %", shortened(size))));
    head.extend(["requests", "looked up, tokens"].map(str::to_owned));
    let mut table = Table { head, rows: Vec::new(), text_columns };
    for group in groups {
        let rates = (0..breakdown.sizes.len()).map(|index| {
            let half_width = group.hit_rate_half_widths.get(index);
            let interval = half_width.map(|it| format!(" ± {:.2}", 100.0 * it)).unwrap_or_default();
            format!("{:.2}{interval}", rate(group, index))
        });
        let counts = [group.requests, group.queries_tokens].map(|count| grouped(count as f64));
        table.push(std::iter::once(group.key.clone()).chain(rates).chain(counts));
    }
    table
}

fn rate(group: &Group, index: usize) -> f64 {
    100.0 * group.hits_tokens[index] as f64 / group.queries_tokens.max(1) as f64
}

/// Of a size among rising ones: the last is the cache without end.
fn size_color(index: usize, breakdown: &Breakdown) -> Color {
    if index + 1 == breakdown.sizes.len() { Color::Ink } else { Color::series(index) }
}
