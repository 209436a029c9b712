//! KV cache groups of a model, and the blocks that a request needs in them.

use crate::catalog::Model;
use crate::engine::EngineConfig;
use crate::engine::kv_cache::KvCacheSpec;

/// The groups of a model, the kind of its first layer first
/// (`_get_kv_cache_groups_uniform_page_size` in `v1/core/kv_cache_planning.py`).
pub(super) fn groups_of(model: &Model, block_size: u32) -> Vec<KvCacheSpec> {
    let full = KvCacheSpec::full(block_size);
    let Some(window) = &model.sliding_window else { return vec![full] };
    let sliding = KvCacheSpec::SlidingWindow { block_size, sliding_window: window.window_tokens };
    let group_size = model.num_layers_per_kv_cache_group();
    let repeat = |spec, layers: u32| vec![spec; layers.div_ceil(group_size) as usize];
    let (full, sliding) =
        (repeat(full, model.num_full_attention_layers()), repeat(sliding, model.num_sliding_layers()));
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

/// The longest `max_model_len` below `too_long`, which does not fit, whose request fits into
/// `num_blocks`; 0 if none does.
pub(super) fn longest_model_len(config: &EngineConfig, too_long: u32, num_blocks: u64) -> u32 {
    let (mut fits, mut too_long) = (0, too_long);
    while fits + 1 < too_long {
        let middle = fits + (too_long - fits) / 2;
        if blocks_for_one_request(config, middle) <= num_blocks { fits = middle } else { too_long = middle }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SlidingWindow;

    #[test]
    fn groups_are_those_of_vllm() {
        let llama = Model::find("Llama-3.1-8B").unwrap();
        assert_eq!(groups_of(&llama, 16), [KvCacheSpec::full(16)]);
        // Patterns of layers and the groups that vLLM 0.33.0 makes of them; true slides.
        let mut model = Model::find("gpt-oss-120b").unwrap();
        let mut kinds = |layers: Vec<bool>| {
            model.num_hidden_layers = layers.len() as u32;
            model.sliding_window = Some(SlidingWindow { window_tokens: 128, layers });
            let groups = groups_of(&model, 16);
            groups
                .iter()
                .map(|group| if *group == KvCacheSpec::full(16) { 'F' } else { 'S' })
                .collect::<String>()
        };
        let gemma_3 = |layers| (1..=layers).map(|layer| layer % 6 != 0).collect();
        assert_eq!(kinds((0..36).map(|layer| layer % 2 == 0).collect()), "SF");
        assert_eq!(kinds((0..20).map(|layer| layer % 2 == 1).collect()), "FS");
        assert_eq!(kinds(gemma_3(26)), "SSSSSSF");
        assert_eq!(kinds(gemma_3(34)), "SSSSSSF");
        assert_eq!(kinds(gemma_3(48)), "SSSSSF");
        assert_eq!(kinds(gemma_3(62)), "SSSSSSF");
        assert_eq!(kinds((0..11).map(|layer| layer >= 5).collect()), "FS");
        assert_eq!(kinds((0..5).map(|layer| layer >= 2).collect()), "FSS");
        assert_eq!(kinds((0..30).map(|layer| layer % 3 == 0).collect()), "SFF");
        assert_eq!(kinds(vec![true; 4]), "S");
        assert_eq!(kinds(vec![false; 4]), "F");
    }

    #[test]
    fn the_longest_request_is_found() {
        let mut config = EngineConfig { max_model_len: 1000, num_gpu_blocks: 11, ..Default::default() };
        assert_eq!(blocks_for_one_request(&config, 1000), 63);
        assert_eq!(longest_model_len(&config, 1000, 10), 160);
        config.kv_cache_groups = vec![KvCacheSpec::full(16), KvCacheSpec::full(16)];
        assert_eq!(longest_model_len(&config, 1000, 10), 80);
        assert_eq!(longest_model_len(&config, 1000, 1), 0);
    }
}
