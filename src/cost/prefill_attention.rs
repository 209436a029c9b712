//! Attention of prompt chunks over themselves and what was computed before them.
//!
//! ```text
//! tile    = u (pairs / q + pad_tokens) + tile_us        u: a tile's time per token of context
//! compute = pnorm(waves(tiles / SMs) tile, max(tail (u kv + tile_us), tile))
//! t       = t0 + pnorm(compute, read / bandwidth) + write_passes written / bandwidth
//!              + write_block_us blocks / SMs
//! ```
//!
//! Several chunks in a step are one launch, so their tiles add up before the waves are counted. Keys
//! and values of the chunk are written to the cache first, by a kernel of its own. Kernels differ in
//! the rows of a tile and in [`Packing`]; a fit finds which describes them.

use serde::{Deserialize, Serialize};

use super::PrefillChunk;
use super::attention::AttentionShape;
use super::law::{L2, law, waves};
use super::smooth_max::smooth_max;
use crate::catalog::Gpu;

/// Whether query heads that share a KV head share a tile's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packing {
    /// Always (FlashAttention 3).
    Always,
    /// Only where a sequence has one query (FlashAttention 2).
    OneQuery,
    Never,
}

law! {
    /// See the module.
    pub struct PrefillAttentionLaw[tile_rows: u32, packing: Packing] {
        t0_us = 9.0 in [0.1, 40.0] else 0.0,
        compute_efficiency = 0.6 in [0.2, 1.0] else 1.0,
        memory_efficiency = 0.6 in [0.05, 3.0] else 1.0,
        p = 2.0 in [0.8, 12.0] else 12.0,
        tile_us = 0.5 in [0.0, 20.0] else 0.0,
        /// Context that a tile pays beyond what its queries see: the masked corner.
        pad_tokens = 30.0 in [0.0, 600.0] else 0.0,
        /// Share of the longest tile that nothing overlaps.
        tail = 0.7 in [0.0, 3.0] else 1.0,
        memory_p = 1.5 in [0.6, 8.0] else 2.0,
        /// Passes of the cache write over what it reads and writes.
        write_passes = 1.5 in [0.2, 20.0] else 0.0,
        /// The same for each block of threads, on one SM.
        write_block_us = 0.7 in [0.0, 10.0] else 0.0,
        /// How far tiles run in whole waves.
        wave_share = 0.5 in [0.0, 1.0] else 0.0,
        /// What packing the heads of single queries takes before and after, where only these are.
        one_query_us = 5.0 in [0.0, 40.0] else 0.0,
        /// Speed of a warm L2 against memory.
        l2_speedup = 2.0 in [1.0, 8.0] else 1.0,
        /// Share of the L2 that a benchmark's operands stay in.
        l2_share = 0.5 in [0.05, 2.0] else 0.5,
    }
}

/// Query-key pairs of `chunk` divided by its queries: the mean number of tokens a query sees, the
/// window included.
pub(super) fn mean_kv_tokens(chunk: PrefillChunk, window_tokens: Option<u32>) -> f64 {
    let (query, past) = (f64::from(chunk.num_tokens), f64::from(chunk.num_computed_tokens));
    let causal = |past: f64, query: f64| query * past + query * (query + 1.0) / 2.0;
    let pairs = match window_tokens.map(f64::from) {
        // The first queries see fewer tokens than the window, the others exactly it.
        Some(window) if past + query > window => {
            let growing = (window - past).max(0.0);
            causal(past, growing) + (query - growing) * window
        }
        _ => causal(past, query),
    };
    pairs / query
}

#[derive(Clone, Debug)]
pub struct PrefillAttention {
    law: PrefillAttentionLaw,
    l2: L2,
    l2_bytes: f64,
    heads_q: f64,
    heads_kv: f64,
    num_sms: f64,
    /// Time of a tile per token of context.
    token_us: f64,
    query_bytes: f64,
    kv_bytes: f64,
    written_bytes: f64,
    /// Per new token, all SMs together.
    write_us: f64,
    bytes_per_us: f64,
}

impl PrefillAttention {
    pub fn new(shape: &AttentionShape, gpu: &Gpu, law: &PrefillAttentionLaw, l2: L2) -> Self {
        let num_sms = f64::from(gpu.num_sms);
        let flops_per_us = gpu.bf16_flops * 1e-6 / num_sms * law.compute_efficiency;
        Self {
            law: *law,
            l2,
            l2_bytes: gpu.l2_bytes as f64,
            heads_q: shape.heads_q,
            heads_kv: shape.prefill_heads_kv,
            num_sms,
            token_us: 4.0 * f64::from(law.tile_rows) * shape.prefill_head_dim / flops_per_us,
            query_bytes: shape.prefill_query_bytes,
            kv_bytes: shape.kv_bytes_per_token,
            written_bytes: shape.new_kv_bytes + shape.kv_bytes_per_token,
            write_us: law.write_block_us * shape.write_blocks / num_sms,
            bytes_per_us: gpu.hbm_bytes_per_s * 1e-6,
        }
    }

    pub fn t0_us(&self) -> f64 {
        self.law.t0_us
    }

    /// One launch over `chunks`, which is not empty.
    pub fn time_us(&self, chunks: &[PrefillChunk], window_tokens: Option<u32>) -> f64 {
        let law = &self.law;
        let (mut work, mut all_tiles, mut longest) = (0.0, 0.0, 0.0f64);
        let (mut read, mut written, mut write_us) = (0.0, 0.0, 0.0);
        for &chunk in chunks {
            let queries = f64::from(chunk.num_tokens);
            let tiles = self.tiles(chunk.num_tokens);
            let visible = visible_tokens(chunk, window_tokens);
            let tile = self.token_us * (mean_kv_tokens(chunk, window_tokens) + law.pad_tokens) + law.tile_us;
            work += tiles * tile;
            all_tiles += tiles;
            longest = longest.max(law.tail * (self.token_us * visible + law.tile_us)).max(tile);
            read += queries * self.query_bytes + visible.max(queries) * self.kv_bytes;
            written += queries * self.written_bytes;
            write_us += queries * self.write_us;
        }
        let waves = waves(all_tiles, self.num_sms, law.wave_share);
        let compute = smooth_max(waves * work / all_tiles, longest, law.p);
        let speedup = self.l2.speedup(read + written, self.l2_bytes, law.l2_speedup, law.l2_share);
        let bytes_per_us = self.bytes_per_us * speedup;
        let memory = read / (bytes_per_us * law.memory_efficiency);
        let is_packed = chunks.iter().all(|chunk| chunk.num_tokens <= 1) && self.heads_q > self.heads_kv;
        let packing_us = if is_packed && law.packing == Packing::OneQuery { law.one_query_us } else { 0.0 };
        law.t0_us
            + packing_us
            + smooth_max(compute, memory, law.memory_p)
            + law.write_passes * written / bytes_per_us
            + write_us
    }

    fn tiles(&self, queries: u32) -> f64 {
        let rows = f64::from(self.law.tile_rows);
        let queries = f64::from(queries);
        let packed = match self.law.packing {
            Packing::Always => true,
            Packing::OneQuery => queries <= 1.0,
            Packing::Never => false,
        };
        if packed {
            self.heads_kv * (queries * self.heads_q / self.heads_kv / rows).ceil()
        } else {
            self.heads_q * (queries / rows).ceil()
        }
    }
}

/// Tokens that the last query of a chunk sees.
fn visible_tokens(chunk: PrefillChunk, window_tokens: Option<u32>) -> f64 {
    let all = f64::from(chunk.num_tokens) + f64::from(chunk.num_computed_tokens);
    window_tokens.map_or(all, |window| all.min(f64::from(window)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_counts_every_pair_once() {
        for (query, past, window) in
            [(1, 0, None), (5, 0, None), (7, 9, None), (7, 9, Some(4)), (9, 2, Some(6))]
        {
            let chunk = PrefillChunk { num_tokens: query, num_computed_tokens: past };
            let limit = window.unwrap_or(u32::MAX);
            let pairs: u32 = (1..=query).map(|position| (past + position).min(limit)).sum();
            let mean = mean_kv_tokens(chunk, window);
            assert!((mean - f64::from(pairs) / f64::from(query)).abs() < 1e-9, "{query} {past} {window:?}");
        }
    }
}
