//! What a server holds before any request: what vLLM logs when it starts, predicted.

use std::path::Path;

use serde::Serialize;

use super::engine_section::EngineSection;
use super::error::suggest;
use super::kv_cache_groups::{blocks_for_one_request, longest_model_len};
use crate::catalog::{
    Gpu, HfConfigError, KvCacheSize, Model, SizingError, UnknownName, extrapolated_because, parse_hf_config,
    size_kv_cache,
};
use crate::text_file::{TextFileError, read_text};

/// A model that cannot be served because nobody knows it.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("unknown model `{}`\n  help: {}; or give the path of a Hugging Face config.json", .0.name, suggest(&.0.name, &.0.known))]
    Unknown(#[from] UnknownName),
    #[error(transparent)]
    File(#[from] TextFileError),
    #[error(transparent)]
    Config(#[from] HfConfigError),
}

/// A built-in model by its name, or the one of a Hugging Face `config.json`, which is called after its
/// folder; a relative path begins at `folder`.
///
/// # Errors
/// There is no such model or file, or the file is none of a model.
pub fn find_model(name: &str, folder: &Path) -> Result<Model, ModelError> {
    if !name.ends_with(".json") {
        return Ok(Model::find(name)?);
    }
    let path = folder.join(name);
    let text = read_text(&path)?;
    let stem = path.parent().and_then(Path::file_name).unwrap_or(path.as_os_str());
    Ok(parse_hf_config(&stem.to_string_lossy(), &text)?)
}

/// A server's memory; bytes are those of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerSize {
    pub tensor_parallel_size: u32,
    pub data_parallel_size: u32,
    /// Of all engine cores; the rest is of one.
    pub num_gpus: u32,
    pub block_size_tokens: u32,
    pub max_model_len: u32,
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    pub memory: KvCacheSize,
    /// In all layers, those with a window included.
    pub kv_bytes_per_token: u64,
    /// The most that one request of `max_model_len` tokens holds at once, over all KV cache groups.
    pub blocks_per_request: u64,
    /// vLLM's "GPU KV cache size": `max_concurrency` requests of `max_model_len` tokens
    /// (`get_kv_cache_capacity` in `v1/core/kv_cache_utils.py`).
    pub kv_cache_tokens: u64,
    /// vLLM's "Maximum concurrency": all blocks, the null block included, over those of one request.
    pub max_concurrency: f64,
    /// The longest with which vLLM starts, at most what the model was made for; 0 if none.
    pub longest_max_model_len: u32,
    /// Why the memory of a step is a guess beyond what it was set on; `None` where it is not.
    pub extrapolated_because: Option<String>,
}

impl ServerSize {
    /// # Errors
    /// The model does not fit, or its heads cannot be shared among the ranks.
    pub fn new(model: &Model, gpu: &Gpu, section: &EngineSection) -> Result<Self, SizingError> {
        let model = section.served(model.clone());
        let mut engine = section.to_config(&model, gpu);
        let memory = size_kv_cache(&model, gpu, &section.memory_config(&engine))?;
        engine.num_gpu_blocks = section.num_gpu_blocks_override.unwrap_or(memory.num_gpu_blocks);
        let blocks_per_request = blocks_for_one_request(&engine, engine.max_model_len);
        let max_concurrency = f64::from(engine.num_gpu_blocks) / blocks_per_request as f64;
        let usable_blocks = u64::from(engine.num_gpu_blocks.saturating_sub(1));
        let longest = model.max_position_embeddings;
        let longest_max_model_len = if blocks_for_one_request(&engine, longest) <= usable_blocks {
            longest
        } else {
            longest_model_len(&engine, longest, usable_blocks)
        };
        Ok(Self {
            tensor_parallel_size: section.tensor_parallel_size,
            data_parallel_size: section.data_parallel_size,
            num_gpus: section.num_gpus(),
            block_size_tokens: engine.block_size,
            max_model_len: engine.max_model_len,
            max_num_seqs: engine.max_num_seqs,
            max_num_batched_tokens: engine.max_num_batched_tokens,
            kv_bytes_per_token: match section.has_draft_head() {
                true => model.with_draft_layer().kv_bytes_per_token(section.tensor_parallel_size),
                false => model.kv_bytes_per_token(section.tensor_parallel_size),
            },
            blocks_per_request,
            kv_cache_tokens: (max_concurrency * f64::from(engine.max_model_len)) as u64,
            max_concurrency,
            longest_max_model_len,
            extrapolated_because: extrapolated_because(&model, gpu),
            memory,
        })
    }

    /// vLLM starts: a request of `max_model_len` tokens fits beside the null block.
    pub fn starts(&self) -> bool {
        self.max_model_len <= self.longest_max_model_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Dtype;
    use crate::engine::config::SpecMethod;
    use crate::scenario::SpeculativeSection;

    fn size(model: &str, section: &EngineSection) -> ServerSize {
        ServerSize::new(&Model::find(model).unwrap(), Gpu::find("H100").unwrap(), section).unwrap()
    }

    #[test]
    fn tokens_and_concurrency_are_vllms_quotients() {
        let section = EngineSection {
            num_gpu_blocks_override: Some(1000),
            max_model_len: Some(1000),
            ..EngineSection::default()
        };
        // 63 blocks of 16 hold 1,000 tokens; 1000 / 63 requests of 1,000 tokens.
        let llama = size("Llama-3.1-8B", &section);
        assert_eq!((llama.blocks_per_request, llama.kv_cache_tokens), (63, 15_873));
        assert_eq!(llama.max_concurrency, 1000.0 / 63.0);
        // One block is the null block.
        assert_eq!(llama.longest_max_model_len, 999 * 16);
        assert!(llama.starts());
        let small = EngineSection { num_gpu_blocks_override: Some(63), ..section };
        assert!(!size("Llama-3.1-8B", &small).starts());
    }

    /// Recorded from vLLM 0.33.0 by tests/vllm/record_kv_cache_sizes.py: full attention, windows, both, and
    /// latent vectors, on several ranks, with and without a draft head.
    #[test]
    fn blocks_groups_and_capacity_are_vllms() {
        let recorded = include_str!("../../tests/vllm/kv_cache_sizes.jsonl");
        assert_eq!(recorded.lines().count(), 14);
        for line in recorded.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| case[name].as_u64().unwrap();
            let model = parse_hf_config("recorded", &case["config"].to_string()).unwrap();
            let eagle = SpeculativeSection {
                method: SpecMethod::Eagle,
                num_speculative_tokens: 3,
                disable_lookahead_block_hashes: false,
                acceptance_rate: 0.5,
            };
            let section = EngineSection {
                tensor_parallel_size: number("tensor_parallel_size") as u32,
                block_size: number("block_size") as u32,
                max_model_len: Some(number("max_model_len") as u32),
                max_num_batched_tokens: Some(number("max_num_batched_tokens") as u32),
                max_num_seqs: Some(256),
                // Weights that fit; the memory for blocks is that of the case.
                quantization: Some(Dtype::Int4),
                speculative_config: case["eagle"].as_bool().unwrap().then_some(eagle),
                ..EngineSection::default()
            };
            let gpu = Gpu::find("B300").unwrap();
            let engine = section.to_config(&model, gpu);
            let groups = case["group_layers"].as_array().unwrap().len();
            assert_eq!(engine.kv_cache_groups.len(), groups, "{line}");
            let served = section.served(model.clone());
            let memory = size_kv_cache(&served, gpu, &section.memory_config(&engine)).unwrap();
            let num_gpu_blocks = (number("available_bytes") / memory.bytes_per_block) as u32;
            assert_eq!(u64::from(num_gpu_blocks), number("num_gpu_blocks"), "{line}");
            let section = EngineSection { num_gpu_blocks_override: Some(num_gpu_blocks), ..section };
            let size = ServerSize::new(&model, gpu, &section).unwrap();
            assert_eq!(size.max_concurrency, case["max_concurrency"].as_f64().unwrap(), "{line}");
            assert_eq!(size.kv_cache_tokens, number("kv_cache_tokens"), "{line}");
            assert_eq!(u64::from(size.longest_max_model_len), number("longest_max_model_len"), "{line}");
        }
    }

    #[test]
    fn a_window_takes_no_more_blocks_than_it_can_fill() {
        let section = EngineSection { max_model_len: Some(100_000), ..EngineSection::default() };
        let gpt_oss = size("gpt-oss-120b", &section);
        let full = 100_000_u64.div_ceil(16);
        // The window of 128 tokens and two steps of 8,192 tokens in flight, not 100,000.
        assert!((full + 1..full + 1 + 2 * (8_192 / 16) + 9).contains(&gpt_oss.blocks_per_request));
    }
}
