//! What real machines hold.

use serde::Serialize;

use super::cache_size::{CacheShape, GIB};
use crate::engine::connector::TierKind;
use crate::scenario::Scenario;

/// The size of a cache that one can have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    pub label: String,
    /// At the scenario's block size.
    pub cache_tokens: u64,
    pub cache_gib: f64,
}

/// The caches of the scenario's GPU, of twice and four times as many in tensor parallel, and of host
/// memory: that of the scenario's tiers, or so much. The second list tells what there cannot be.
pub fn marks(scenario: &Scenario, host_gib: f64) -> (Vec<Mark>, Vec<String>) {
    let shape = CacheShape::of(scenario);
    let mark =
        |label: String, tokens: u64| Mark { label, cache_tokens: tokens, cache_gib: shape.gib(tokens) };
    let tp = scenario.file.engine.tensor_parallel_size;
    let gpu = scenario.gpu.name;
    // Block 0 is the null block.
    let own = shape.tokens_of_blocks(u64::from(scenario.engine.num_gpu_blocks - 1));
    let own_label = match scenario.file.engine.num_gpu_blocks_override {
        Some(blocks) => format!("num_gpu_blocks_override {blocks}"),
        None => format!("{} x {gpu}", scenario.file.engine.num_gpus()),
    };
    let mut marks = vec![mark(own_label.clone(), own)];
    let mut notes = Vec::new();
    let first = if scenario.file.engine.num_gpu_blocks_override.is_some() { 1 } else { 2 };
    for factor in [1, 2, 4].into_iter().filter(|&factor| factor >= first) {
        let gpus = scenario.file.engine.num_gpus().saturating_mul(factor);
        match scenario.kv_cache_size_at(tp.saturating_mul(factor)) {
            Ok(size) => {
                let tokens = shape.tokens_of_blocks(u64::from(size.num_gpu_blocks - 1));
                marks.push(mark(format!("{gpus} x {gpu}"), tokens));
            }
            Err(error) => notes.push(format!("no mark of {gpus} x {gpu}: {error}")),
        }
    }
    let tiers = scenario.file.engine.kv_transfer_config.iter().flat_map(|config| &config.tiers);
    let tiers: Vec<(f64, &str)> = tiers.map(|tier| (tier.size_gib, kind_name(tier.kind))).collect();
    let tiers = if tiers.is_empty() { vec![(host_gib, "host")] } else { tiers };
    let gib: f64 = tiers.iter().map(|(gib, _)| gib).sum();
    if gib > 0.0 {
        let names: Vec<String> = tiers.iter().map(|(gib, name)| format!("{gib} GiB {name}")).collect();
        // Tiers have copies of what the GPU has, so that the larger of both is what is held.
        let tokens = own.max(shape.tokens_of_gib(gib.min(u64::MAX as f64 / GIB)));
        marks.push(mark(format!("{own_label} + {}", names.join(" + ")), tokens));
    }
    marks.sort_by_key(|mark| mark.cache_tokens);
    (marks, notes)
}

fn kind_name(kind: TierKind) -> &'static str {
    match kind {
        TierKind::Host => "host",
        TierKind::Disk => "disk",
        TierKind::Remote => "remote",
    }
}
