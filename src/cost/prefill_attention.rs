//! Attention of prompt chunks over themselves and what was computed before them.
//!
//! Two laws, by kernel. Tiles of 128 rows share the SMs evenly but for the longest tile's tail. Tiles
//! of 64 rows run in whole waves over the earlier KV, and overlap in the causal triangle. Several
//! chunks in a step are one launch, so their tiles add up before the waves are counted.

use crate::catalog::Gpu;

use super::PrefillChunk;
use super::attention::AttentionShape;
use super::coefficients::{PrefillAttentionCoefficients, TilesCoefficients, WavesCoefficients};
use super::smooth_max::smooth_max;

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
pub(super) struct PrefillAttention {
    law: Law,
    heads_q: f64,
    num_sms: f64,
    query_bytes: f64,
    kv_bytes: f64,
    bytes_per_us: f64,
}

#[derive(Clone, Debug)]
enum Law {
    /// With the time of a 128-row tile per token of context.
    Tiles128 { fit: TilesCoefficients, token_us: f64 },
    /// With the time of a 64-row tile per token of context.
    Waves64 { fit: WavesCoefficients, token_us: f64 },
}

impl PrefillAttention {
    pub fn new(shape: &AttentionShape, gpu: &Gpu, fit: PrefillAttentionCoefficients) -> Self {
        let num_sms = f64::from(gpu.num_sms);
        let (law, memory_efficiency) = match fit {
            PrefillAttentionCoefficients::Tiles128(fit) => {
                let flops_per_us = gpu.bf16_flops * 1e-6 / num_sms * fit.compute_efficiency;
                let token_us = 4.0 * 128.0 * shape.prefill_head_dim / flops_per_us;
                (Law::Tiles128 { fit, token_us }, fit.memory_efficiency)
            }
            PrefillAttentionCoefficients::Waves64(fit) => {
                let token_us = fit.token_ns * 1e-3 * shape.prefill_head_dim / 128.0;
                (Law::Waves64 { fit, token_us }, fit.memory_efficiency)
            }
        };
        Self {
            law,
            heads_q: shape.heads_q,
            num_sms,
            query_bytes: shape.prefill_query_bytes,
            kv_bytes: shape.kv_bytes_per_token,
            bytes_per_us: gpu.hbm_bytes_per_s * 1e-6 * memory_efficiency,
        }
    }

    pub fn t0_us(&self) -> f64 {
        match &self.law {
            Law::Tiles128 { fit, .. } => fit.t0_us,
            Law::Waves64 { fit, .. } => fit.t0_us,
        }
    }

    /// One launch over `chunks`, which is not empty.
    pub fn time_us(&self, chunks: &[PrefillChunk], window_tokens: Option<u32>) -> f64 {
        let memory = self.read_us(chunks, window_tokens);
        match &self.law {
            Law::Tiles128 { fit, token_us } => {
                let (mut work, mut longest) = (0.0, 0.0f64);
                for &chunk in chunks {
                    let tiles = self.heads_q * f64::from(chunk.num_tokens.div_ceil(128));
                    let tile =
                        token_us * (mean_kv_tokens(chunk, window_tokens) + fit.pad_tokens) + fit.tile_us;
                    let tail = fit.tail * (token_us * visible_tokens(chunk, window_tokens) + fit.tile_us);
                    work += tiles * tile;
                    longest = longest.max(tail).max(tile);
                }
                let compute = smooth_max(work / self.num_sms, longest, fit.p);
                fit.t0_us + smooth_max(compute, memory, fit.memory_p)
            }
            Law::Waves64 { fit, token_us } => {
                let (mut tiles, mut earlier, mut triangle) = (0.0, 0.0, 0.0);
                for &chunk in chunks {
                    let chunk_tiles = self.heads_q * f64::from(chunk.num_tokens.div_ceil(64));
                    let mean = mean_kv_tokens(chunk, window_tokens);
                    let past = f64::from(chunk.num_computed_tokens).min(mean);
                    tiles += chunk_tiles;
                    earlier += chunk_tiles * (fit.tile_us + token_us * past);
                    triangle += chunk_tiles * token_us * (mean - past + 32.0);
                }
                let waves = tiles / self.num_sms;
                let compute = (waves.ceil() * earlier + waves.max(1.0) * triangle) / tiles;
                fit.t0_us + smooth_max(compute, memory, fit.p)
            }
        }
    }

    /// Time to read queries, keys and values once and write the output.
    fn read_us(&self, chunks: &[PrefillChunk], window_tokens: Option<u32>) -> f64 {
        let bytes = |&chunk: &PrefillChunk| {
            let kv = visible_tokens(chunk, window_tokens).max(f64::from(chunk.num_tokens));
            f64::from(chunk.num_tokens) * self.query_bytes + kv * self.kv_bytes
        };
        chunks.iter().map(bytes).sum::<f64>() / self.bytes_per_us
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
