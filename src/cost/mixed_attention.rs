//! Attention of a batch that holds both prompt chunks and decodes, with FlashAttention 2.
//!
//! One launch serves both, and it stops packing the query heads that share a KV head: every decode
//! costs a tile per query head instead of one per KV head. The sum of the parts is 20 to 40 % short.
//!
//! ```text
//! tile(kv) = tile_us + token_ns D / 128 kv
//! compute  = max(waves(heads_q tiles / SMs) mean tile, longest tile)      a tile per decode and 64 rows
//! t        = t0 + pnorm(compute, bytes / bandwidth)
//! ```

use crate::catalog::Gpu;

use super::StepShape;
use super::attention::AttentionShape;
use super::law::{law, waves};
use super::prefill_attention::mean_kv_tokens;
use super::smooth_max::smooth_max;

law! {
    /// See the module.
    pub struct MixedAttentionLaw[] {
        t0_us = 2.0 in [0.0, 40.0] else 0.0,
        /// Nanoseconds per token of context for a head of 128.
        token_ns = 22.0 in [2.0, 200.0] else 20.0,
        tile_us = 6.0 in [0.0, 30.0] else 0.0,
        memory_efficiency = 0.9 in [0.2, 1.0] else 1.0,
        p = 2.0 in [0.7, 12.0] else 2.0,
        /// How far tiles run in whole waves.
        wave_share = 0.5 in [0.0, 1.0] else 0.0,
    }
}

#[derive(Clone, Debug)]
pub struct MixedAttention {
    fit: MixedAttentionLaw,
    heads_q: f64,
    num_sms: f64,
    token_us: f64,
    query_bytes: f64,
    kv_bytes: f64,
    bytes_per_us: f64,
}

impl MixedAttention {
    pub fn new(shape: &AttentionShape, gpu: &Gpu, fit: &MixedAttentionLaw) -> Self {
        Self {
            fit: *fit,
            heads_q: shape.heads_q,
            num_sms: f64::from(gpu.num_sms),
            token_us: fit.token_ns * 1e-3 * shape.prefill_head_dim / 128.0,
            query_bytes: shape.prefill_query_bytes,
            kv_bytes: shape.kv_bytes_per_token,
            bytes_per_us: gpu.hbm_bytes_per_s * 1e-6 * fit.memory_efficiency,
        }
    }

    /// The chunks of `shape` beside its decodes, which attend to `decode_kv_tokens` each on average.
    pub fn time_us(&self, shape: &StepShape, window_tokens: Option<u32>, decode_kv_tokens: f64) -> f64 {
        let tile_us = |kv_tokens: f64| self.fit.tile_us + self.token_us * kv_tokens;
        let decodes = f64::from(shape.num_decodes);
        let mut longest = tile_us(decode_kv_tokens);
        let mut work = decodes * longest;
        let mut tiles = decodes;
        let mut bytes = decodes * (self.query_bytes + decode_kv_tokens * self.kv_bytes);
        for &chunk in &shape.prefill_chunks {
            let tokens = f64::from(chunk.num_tokens);
            let mean = mean_kv_tokens(chunk, window_tokens);
            let tile = tile_us(mean);
            longest = longest.max(tile);
            let chunk_tiles = f64::from(chunk.num_tokens.div_ceil(64));
            tiles += chunk_tiles;
            work += chunk_tiles * tile;
            bytes += tokens * self.query_bytes + mean.max(tokens) * self.kv_bytes;
        }
        let waves = waves(self.heads_q * tiles, self.num_sms, self.fit.wave_share);
        let compute = (waves * work / tiles).max(longest);
        self.fit.t0_us + smooth_max(compute, bytes / self.bytes_per_us, self.fit.p)
    }
}
