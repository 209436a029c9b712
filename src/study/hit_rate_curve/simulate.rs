//! Full simulations at chosen sizes: a sweep of block size x cache size.

use super::CurveError;
use super::cache_size::CacheShape;
use super::curve::{BlockSizeCurve, SimulatedPoint, SimulatedRun};
use super::pass::Lane;
use super::request::{CurveRequest, Progress};
use crate::scenario::{Node, ScenarioError, Template};
use crate::study::sweep::{Point, Row, Sweep};

const METRICS: [&str; 5] = [
    "prefix_cache.queries_tokens",
    "prefix_cache.hits_tokens",
    "requests.preemptions",
    "kv_cache.usage_mean",
    "latency.ttft.p99_ms",
];

/// Simulates caches of these sizes in tokens at each block size: `typed` as the scenario names it. What has
/// finished is in the journal of `folder`, from where the same simulations go on.
pub(super) fn simulate(
    template: &Template,
    typed: &[u32],
    tokens: &[u64],
    request: &CurveRequest,
    curves: &mut [BlockSizeCurve],
    lanes: &[Lane],
    progress: &mut dyn Progress,
) -> Result<(), CurveError> {
    let mut points = Vec::new();
    for (&block_size, curve) in typed.iter().zip(curves.iter()) {
        for &tokens in tokens {
            // The null block is one more.
            let blocks = curve.shape.blocks(tokens).saturating_add(1);
            let fields = vec![
                field(template, "engine.block_size", u64::from(block_size))?,
                field(template, "engine.num_gpu_blocks_override", blocks)?,
            ];
            points.push(Point { name: None, fields });
        }
    }
    let sweep = Sweep::of_points("curve", template, points, &METRICS)?;
    let rows = sweep.rows(&request.simulations, request.threads, progress)?;
    for ((rows, curve), lane) in rows.chunks(tokens.len().max(1)).zip(curves).zip(lanes) {
        let point = |(row, &tokens): (&Row, &u64)| point(row, tokens, &curve.shape, lane);
        curve.simulated = rows.iter().zip(tokens).map(point).collect();
    }
    Ok(())
}

fn field(template: &Template, path: &str, value: u64) -> Result<(String, Node), ScenarioError> {
    Ok((path.to_owned(), template.value(path, &value.to_string())?))
}

fn point(row: &Row, tokens: u64, shape: &CacheShape, lane: &Lane) -> SimulatedPoint {
    let metric = |index: usize| row.metric(METRICS[index]).unwrap_or_default();
    let (queries, hits) = (metric(0), metric(1));
    let one_pass = lane.hits(&[shape.chain_blocks(tokens)]);
    let run = SimulatedRun {
        queries_tokens: queries as u64,
        hits_tokens: hits as u64,
        hit_rate: if queries > 0.0 { hits / queries } else { 0.0 },
        preemptions: metric(2) as u64,
        usage_mean: metric(3),
        ttft_p99_ms: metric(4),
        one_pass_hit_rate: one_pass[0].hit_rate,
    };
    SimulatedPoint {
        cache_blocks: shape.blocks(tokens),
        cache_tokens: tokens,
        cache_gib: shape.gib(tokens),
        run: row.error().is_none().then_some(run),
        error: row.error().map(str::to_owned),
    }
}
