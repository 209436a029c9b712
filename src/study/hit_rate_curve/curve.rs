//! The result.

use serde::Serialize;

use super::breakdown::Breakdown;
use super::cache_size::CacheShape;
use super::marks::Mark;
use super::pass::{Hits, Lane, Sampling};

/// The knee is looked for at so many sizes.
const KNEE_STEPS: u64 = 1_000;

/// Hit rates of a scenario's requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    pub name: String,
    pub seed: u64,
    pub model: String,
    pub gpu: String,
    pub num_gpus: u32,
    pub requests: u64,
    /// `None`: every block was looked at, and the one pass is exact.
    pub sampling: Option<Sampling>,
    /// What real machines hold, rising.
    pub marks: Vec<Mark>,
    pub block_sizes: Vec<BlockSizeCurve>,
    /// What was assumed, in sentences.
    pub notes: Vec<String>,
}

/// The curve of one block size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockSizeCurve {
    #[serde(flatten)]
    pub shape: CacheShape,
    /// Tokens of all prompts that look into the cache: the denominator of every rate of the one pass.
    pub queries_tokens: u64,
    /// Distinct tokens of prompts and answers in full blocks.
    pub unique_tokens: u64,
    /// A cache without end. Its size is the smallest that finds as much.
    pub infinite: Point,
    /// Where the curve is furthest above the chord from no cache to [`Self::infinite`], on linear axes:
    /// up to there memory brings more hits than on average, and less from there on. `None` without
    /// hits.
    pub knee: Option<Point>,
    /// Rising.
    pub points: Vec<Point>,
    /// In the order of [`Curve::marks`].
    pub at_marks: Vec<Point>,
    pub simulated: Vec<SimulatedPoint>,
    pub breakdown: Breakdown,
    /// Blocks in the sample at the end.
    pub sampled_blocks: Option<u64>,
    /// The share of all blocks in the sample at the end.
    pub sampled_rate: Option<f64>,
}

/// An LRU cache of whole prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// vLLM's blocks, without the null block.
    pub cache_blocks: u64,
    pub cache_tokens: u64,
    /// On all ranks together.
    pub cache_gib: f64,
    pub hits_tokens: u64,
    /// `hits_tokens / queries_tokens`.
    pub hit_rate: f64,
    /// Of the 95 % interval around a sampled rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_rate_half_width: Option<f64>,
}

/// A simulation of the engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulatedPoint {
    pub cache_blocks: u64,
    pub cache_tokens: u64,
    pub cache_gib: f64,
    /// `None`: it could not run, and `error` says why.
    pub run: Option<SimulatedRun>,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SimulatedRun {
    /// Of first admissions, as vLLM counts.
    pub queries_tokens: u64,
    pub hits_tokens: u64,
    pub hit_rate: f64,
    pub preemptions: u64,
    pub usage_mean: f64,
    pub ttft_p99_ms: f64,
    /// What the LRU of the one pass has at this size.
    pub one_pass_hit_rate: f64,
}

impl BlockSizeCurve {
    /// `tokens` are the sizes of the curve, rising; those of marks need not.
    pub(super) fn new(
        shape: CacheShape,
        lane: &Lane,
        tokens: &[u64],
        marks: &[Mark],
        tenants: &[String],
    ) -> Self {
        let queries_tokens = lane.queries_tokens();
        let block_size = u64::from(shape.block_size_tokens);
        let point = |cache_tokens: u64, hits: Hits| Point {
            cache_blocks: shape.blocks(cache_tokens),
            cache_tokens,
            cache_gib: shape.gib(cache_tokens),
            hits_tokens: (hits.hit_rate * queries_tokens as f64).round() as u64,
            hit_rate: hits.hit_rate,
            hit_rate_half_width: hits.half_width,
        };
        let points_at = |tokens: &[u64]| -> Vec<Point> {
            let blocks: Vec<u64> = tokens.iter().map(|&tokens| shape.chain_blocks(tokens)).collect();
            tokens.iter().zip(lane.hits(&blocks)).map(|(&tokens, hits)| point(tokens, hits)).collect()
        };
        let enough = lane.enough_blocks();
        let infinite = point(enough * block_size, lane.infinite());
        let mark_tokens: Vec<u64> = marks.iter().map(|mark| mark.cache_tokens).collect();
        let steps: Vec<u64> = (1..=KNEE_STEPS).map(|step| enough * step / KNEE_STEPS * block_size).collect();
        let (sampled_blocks, sampled_rate) = lane.sample().unzip();
        Self {
            shape,
            queries_tokens,
            unique_tokens: lane.unique_blocks() * block_size,
            knee: knee(&points_at(&steps), &infinite),
            infinite,
            points: points_at(tokens),
            at_marks: points_at(&mark_tokens),
            simulated: Vec::new(),
            breakdown: lane.breakdown(marks.iter().map(|mark| mark.label.clone()).collect(), tenants),
            sampled_blocks,
            sampled_rate,
        }
    }

    /// The largest half width of a sampled hit rate.
    pub fn largest_half_width(&self) -> Option<f64> {
        let points = self.points.iter().chain([&self.infinite]);
        points.filter_map(|point| point.hit_rate_half_width).reduce(f64::max)
    }
}

fn knee(points: &[Point], infinite: &Point) -> Option<Point> {
    if infinite.hit_rate <= 0.0 || infinite.cache_tokens == 0 {
        return None;
    }
    let above = |point: &Point| {
        point.hit_rate / infinite.hit_rate - point.cache_tokens as f64 / infinite.cache_tokens as f64
    };
    // Of equals the smallest.
    points.iter().copied().reduce(|best, point| if above(&point) > above(&best) { point } else { best })
}
