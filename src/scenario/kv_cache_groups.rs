//! KV cache groups of a model, and the blocks that a request needs in them.

use crate::catalog::Model;
use crate::engine::EngineConfig;
use crate::engine::kv_cache::KvCacheSpec;

/// The groups of a model: one if all its layers are of a kind, else so many of each kind that all
/// have about the same number of layers (`_get_kv_cache_groups_uniform_page_size` in
/// `v1/core/kv_cache_planning.py`).
pub(super) fn groups_of(model: &Model, block_size: u32) -> Vec<KvCacheSpec> {
    let full = KvCacheSpec::full(block_size);
    let Some(window) = &model.sliding_window else { return vec![full] };
    let sliding = KvCacheSpec::SlidingWindow { block_size, sliding_window: window.window_tokens };
    let (num_full, num_sliding) = (model.num_full_attention_layers(), model.num_sliding_layers());
    if num_sliding == 0 {
        return vec![full];
    }
    if num_full == 0 {
        return vec![sliding];
    }
    let (fewer, more) = (num_full.min(num_sliding), num_full.max(num_sliding));
    // Less than half again as many: padding wastes less than splitting.
    let group_size = if u64::from(more) * 2 < u64::from(fewer) * 3 { more } else { fewer };
    let repeat = |spec, layers: u32| vec![spec; layers.div_ceil(group_size) as usize];
    let (full, sliding) = (repeat(full, num_full), repeat(sliding, num_sliding));
    // The kind of the first layer comes first.
    if window.layers.first() == Some(&true) { [sliding, full].concat() } else { [full, sliding].concat() }
}

/// Blocks that one request of `max_model_len` tokens can hold at once
/// (`_max_memory_usage_bytes_from_groups`).
pub(super) fn blocks_for_one_request(config: &EngineConfig, max_model_len: u32) -> u64 {
    config
        .kv_cache_groups
        .iter()
        .map(|spec| {
            let windowed =
                spec.max_admission_blocks_per_request(config.max_in_flight_tokens(), max_model_len);
            u64::from(match windowed {
                Some(blocks) => blocks,
                // The running state and the one before, in mode "align".
                None if spec.is_mamba() => 2,
                None => max_model_len.div_ceil(config.group_block_size(spec)),
            })
        })
        .sum()
}

/// The longest `max_model_len` whose request fits into `num_blocks`, 0 if none does.
pub(super) fn longest_model_len(config: &EngineConfig, num_blocks: u64) -> u32 {
    let (mut fits, mut too_long) = (0, config.max_model_len);
    while fits + 1 < too_long {
        let middle = fits + (too_long - fits) / 2;
        if blocks_for_one_request(config, middle) <= num_blocks { fits = middle } else { too_long = middle }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_vllm() {
        let llama = Model::find("Llama-3.1-8B").unwrap();
        assert_eq!(groups_of(&llama, 16), [KvCacheSpec::full(16)]);
        // 18 layers of each kind, a sliding one first.
        let gpt_oss = Model::find("gpt-oss-120b").unwrap();
        let sliding = KvCacheSpec::SlidingWindow { block_size: 16, sliding_window: 128 };
        assert_eq!(groups_of(&gpt_oss, 16), [sliding, KvCacheSpec::full(16)]);
    }

    #[test]
    fn the_longest_request_is_found() {
        let mut config = EngineConfig { max_model_len: 1000, num_gpu_blocks: 11, ..Default::default() };
        assert_eq!(blocks_for_one_request(&config, 1000), 63);
        assert_eq!(longest_model_len(&config, 10), 160);
        config.kv_cache_groups = vec![KvCacheSpec::full(16), KvCacheSpec::full(16)];
        assert_eq!(longest_model_len(&config, 10), 80);
        assert_eq!(longest_model_len(&config, 1), 0);
    }
}
