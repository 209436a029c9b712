//! How many KV cache blocks fit: vLLM's memory profiling, predicted.
//!
//! vLLM measures what is left after weights, the peak of a dummy step and CUDA graphs
//! (`Worker.determine_available_memory`), then divides by the bytes of a block
//! (`get_kv_cache_config_from_groups`). The division is mirrored exactly. The peak is estimated
//! here: it is the larger of the widest layer and the sampler's warm-up, which vLLM runs with
//! `max_num_seqs` rows over the whole vocabulary.

use serde::Serialize;

use super::pipeline_stage::PipelineStage;
use super::{Gpu, Model};

/// Bytes per logit at the peak of the sampler's warm-up: 16-bit logits, their 32-bit copy,
/// probabilities and the buffers of top-k and top-p. Set on the published block counts.
const SAMPLER_BYTES_PER_LOGIT: u64 = 16;
/// What libraries hold outside PyTorch's allocator on one GPU, and what PyTorch keeps of it.
const NON_TORCH_BYTES: u64 = 580_000_000;
/// What the communication of several ranks adds: NCCL's and the custom all-reduce's buffers.
const COMMUNICATION_BYTES: u64 = 350_000_000;
/// Per captured graph and layer, from a profile of 86 graphs over 36 layers that took 0.52 GiB.
const CUDA_GRAPH_BYTES_PER_LAYER: u64 = 180_000;

/// The settings that decide how much memory is left for KV cache, under vLLM's names.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryConfig {
    /// Fraction of the GPU that the engine may use, above 0 and at most 1.
    pub gpu_memory_utilization: f64,
    pub tensor_parallel_size: u32,
    /// Engine cores that share the experts of a mixture-of-experts model; a dense one is whole on each.
    pub data_parallel_size: u32,
    /// Stages that share out the layers; the one with the least room decides.
    pub pipeline_parallel_size: u32,
    /// Tokens per KV cache block.
    pub block_size: u32,
    pub max_num_batched_tokens: u32,
    pub max_num_seqs: u32,
    /// Take the memory of CUDA graphs off first (`VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS`, on
    /// since vLLM 0.21). False also stands for `enforce_eager`.
    pub estimate_cudagraphs: bool,
    /// A draft head (EAGLE, MTP) on the last stage: a layer with weights and KV cache of its own.
    pub has_draft_head: bool,
}

/// Where the memory of one rank goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KvCacheSize {
    pub num_gpu_blocks: u32,
    /// Bytes of one block over the layers of one group, on one rank.
    pub bytes_per_block: u64,
    pub requested_bytes: u64,
    pub weight_bytes: u64,
    pub activation_bytes: u64,
    pub cudagraph_bytes: u64,
    pub non_torch_bytes: u64,
    /// What is left for KV cache.
    pub available_bytes: u64,
}

/// A configuration that cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SizingError {
    #[error("`gpu_memory_utilization` is {0}; use a number above 0 and at most 1, such as 0.9")]
    Utilization(f64),
    #[error("`{0}` is 0; use a positive number")]
    Zero(&'static str),
    #[error(
        "`tensor_parallel_size` is {tensor_parallel_size}, but the {num_attention_heads} attention and \
         {num_key_value_heads} KV heads of {model} do not divide by it; use a divisor such as 1, 2, 4 or 8"
    )]
    Heads { model: String, num_attention_heads: u32, num_key_value_heads: u32, tensor_parallel_size: u32 },
    #[error(
        "`pipeline_parallel_size` is {pipeline_parallel_size}, but {model} has {num_hidden_layers} layers; use \
         {num_hidden_layers} or less"
    )]
    Stages { model: String, num_hidden_layers: u32, pipeline_parallel_size: u32 },
    #[error(
        "{model} does not fit on {tensor_parallel_size} x {gpu}: each GPU lacks {} GiB \
         ({} for weights and {} for the engine against {} requested); use {}",
        gib(*missing_bytes), gib(*weight_bytes), gib(*overhead_bytes), gib(*requested_bytes),
        remedy(*fitting_tensor_parallel_size)
    )]
    DoesNotFit {
        model: String,
        gpu: &'static str,
        tensor_parallel_size: u32,
        missing_bytes: u64,
        weight_bytes: u64,
        overhead_bytes: u64,
        requested_bytes: u64,
        /// The smallest power of two that fits, if any up to 64 does.
        fitting_tensor_parallel_size: Option<u32>,
    },
}

fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / (1_u64 << 30) as f64)
}

fn remedy(tensor_parallel_size: Option<u32>) -> String {
    let others = "a GPU with more memory, or weights in fp8";
    match tensor_parallel_size {
        Some(tp) => format!("`tensor_parallel_size: {tp}`, {others}"),
        None => others.to_owned(),
    }
}

/// The number of KV cache blocks that vLLM would choose.
///
/// # Errors
/// [`SizingError`]: a setting out of range, or not even two blocks fit (block 0 is the null block).
pub fn size_kv_cache(model: &Model, gpu: &Gpu, config: &MemoryConfig) -> Result<KvCacheSize, SizingError> {
    check(model, config)?;
    let budget = budget(model, gpu, config);
    if budget.num_gpu_blocks >= 2 {
        return Ok(budget);
    }
    let overhead_bytes = budget.overhead_bytes();
    let needed = budget
        .weight_bytes
        .saturating_add(overhead_bytes)
        .saturating_add(budget.bytes_per_block.saturating_mul(2));
    let fits = |tp: &u32| {
        let config = MemoryConfig { tensor_parallel_size: *tp, ..config.clone() };
        check(model, &config).is_ok() && self::budget(model, gpu, &config).num_gpu_blocks >= 2
    };
    Err(SizingError::DoesNotFit {
        model: model.name.clone(),
        gpu: gpu.name,
        tensor_parallel_size: config.tensor_parallel_size,
        missing_bytes: needed - budget.requested_bytes,
        weight_bytes: budget.weight_bytes,
        overhead_bytes,
        requested_bytes: budget.requested_bytes,
        fitting_tensor_parallel_size: [2, 4, 8, 16, 32, 64].into_iter().find(fits),
    })
}

/// GPUs on which block counts were published that the memory of a step was set on, all of dense models.
const MEASURED_GPUS: [&str; 2] = ["H100-SXM", "RTX-4090"];

/// Why the memory of a step is a guess beyond the block counts that it was set on, if that is so.
pub fn extrapolated_because(model: &Model, gpu: &Gpu) -> Option<String> {
    if model.moe.is_some() {
        return Some("no block counts of mixture-of-experts models were published".to_owned());
    }
    let is_measured = MEASURED_GPUS.contains(&gpu.name);
    (!is_measured).then(|| format!("no block counts on {} were published", gpu.name))
}

fn check(model: &Model, config: &MemoryConfig) -> Result<(), SizingError> {
    let utilization = config.gpu_memory_utilization;
    if !(utilization > 0.0 && utilization <= 1.0) {
        return Err(SizingError::Utilization(utilization));
    }
    for (name, value) in [
        ("tensor_parallel_size", config.tensor_parallel_size),
        ("data_parallel_size", config.data_parallel_size),
        ("pipeline_parallel_size", config.pipeline_parallel_size),
        ("block_size", config.block_size),
        ("max_num_batched_tokens", config.max_num_batched_tokens),
        ("max_num_seqs", config.max_num_seqs),
    ] {
        if value == 0 {
            return Err(SizingError::Zero(name));
        }
    }
    if config.pipeline_parallel_size > model.num_hidden_layers {
        return Err(SizingError::Stages {
            model: model.name.clone(),
            num_hidden_layers: model.num_hidden_layers,
            pipeline_parallel_size: config.pipeline_parallel_size,
        });
    }
    let tp = config.tensor_parallel_size;
    let kv_heads = model.num_key_value_heads;
    // KV heads are split, or each is on several ranks; nothing between.
    let kv_heads_fit = kv_heads.is_multiple_of(tp) || tp.is_multiple_of(kv_heads);
    if !model.num_attention_heads.is_multiple_of(tp) || !kv_heads_fit {
        return Err(SizingError::Heads {
            model: model.name.clone(),
            num_attention_heads: model.num_attention_heads,
            num_key_value_heads: kv_heads,
            tensor_parallel_size: config.tensor_parallel_size,
        });
    }
    Ok(())
}

/// Of the stage that has room for the fewest blocks.
fn budget(model: &Model, gpu: &Gpu, config: &MemoryConfig) -> KvCacheSize {
    let stages = model.pipeline_stages(config.pipeline_parallel_size);
    let sizes = stages.into_iter().map(|stage| stage_budget(model, &stage, gpu, config));
    // There is at least one stage.
    sizes
        .min_by_key(|size| size.num_gpu_blocks)
        .unwrap_or_else(|| stage_budget(model, &PipelineStage::whole(model), gpu, config))
}

fn stage_budget(model: &Model, stage: &PipelineStage, gpu: &Gpu, config: &MemoryConfig) -> KvCacheSize {
    let tp = config.tensor_parallel_size;
    let has_head = config.has_draft_head && stage.is_last;
    // vLLM groups the head's layer with those of the model (`get_global_kv_cache_groups`).
    let layers_per_group = match has_head {
        true => {
            let with_head =
                PipelineStage { layers: stage.layers.start..stage.layers.end + 1, ..stage.clone() };
            with_head.num_layers_per_kv_cache_group(&model.with_draft_layer())
        }
        false => stage.num_layers_per_kv_cache_group(model),
    };
    // Rounded up as in `request_memory`.
    let requested_bytes = (gpu.memory_bytes as f64 * config.gpu_memory_utilization).ceil() as u64;
    let mut size = KvCacheSize {
        num_gpu_blocks: 0,
        // Saturating here and below: a block or a batch of 2^32 tokens does not fit, and says so.
        bytes_per_block: (model.kv_bytes_per_token_per_layer(tp) * u64::from(layers_per_group))
            .saturating_mul(u64::from(config.block_size)),
        requested_bytes,
        weight_bytes: model.weight_bytes_of_stage(stage, tp, expert_ranks(model, config))
            + if has_head { model.draft_head_bytes_per_rank(tp) } else { 0 },
        activation_bytes: peak_activation_bytes(model, config),
        cudagraph_bytes: cudagraph_bytes(stage, config),
        non_torch_bytes: NON_TORCH_BYTES
            + if expert_ranks(model, config) > 1 || config.pipeline_parallel_size > 1 {
                COMMUNICATION_BYTES
            } else {
                0
            },
        available_bytes: 0,
    };
    size.available_bytes =
        requested_bytes.saturating_sub(size.weight_bytes.saturating_add(size.overhead_bytes()));
    size.num_gpu_blocks = u32::try_from(size.available_bytes / size.bytes_per_block).unwrap_or(u32::MAX);
    size
}

/// Ranks that share the experts of a layer, or without experts the layer.
fn expert_ranks(model: &Model, config: &MemoryConfig) -> u32 {
    let engines = if model.moe.is_some() { config.data_parallel_size } else { 1 };
    config.tensor_parallel_size.saturating_mul(engines)
}

impl KvCacheSize {
    /// Everything but weights and KV cache.
    fn overhead_bytes(&self) -> u64 {
        self.activation_bytes.saturating_add(self.cudagraph_bytes + self.non_torch_bytes)
    }
}

/// The larger of the widest point of a layer and the sampler's warm-up; the hidden states live
/// through both.
fn peak_activation_bytes(model: &Model, config: &MemoryConfig) -> u64 {
    let tokens = u64::from(config.max_num_batched_tokens);
    let tp = u64::from(config.tensor_parallel_size);
    let hidden = u64::from(model.hidden_size);
    let value_bytes = model.activation_dtype.bytes(1);
    // Gate and up projections beside their product.
    let dense = 3 * u64::from(model.intermediate_size).div_ceil(tp);
    // The same for every expert a token visits, and each expert's output before they are summed; of the
    // tokens of all engine cores that share the experts.
    let engines = u64::from(config.data_parallel_size);
    let experts = model.moe.as_ref().map_or(0, |moe| {
        let ranks = u64::from(expert_ranks(model, config));
        let visited = 3 * u64::from(moe.moe_intermediate_size).div_ceil(ranks) + hidden;
        engines.saturating_mul(u64::from(moe.num_experts_per_tok) * visited)
    });
    let widest = if model.num_moe_layers() > 0 { experts } else { dense };
    // Hidden states and residual.
    let layer = tokens.saturating_mul(value_bytes.saturating_mul((2 * hidden).saturating_add(widest)));
    let logits =
        u64::from(config.max_num_seqs.min(config.max_num_batched_tokens)) * u64::from(model.vocab_size);
    let sampler = tokens * value_bytes * hidden + SAMPLER_BYTES_PER_LOGIT * logits;
    layer.max(sampler)
}

/// One graph per capture size for mixed batches, and one for each size a decode batch can have.
fn cudagraph_bytes(stage: &PipelineStage, config: &MemoryConfig) -> u64 {
    if !config.estimate_cudagraphs {
        return 0;
    }
    let largest = config.max_num_seqs.saturating_mul(2).min(512).min(config.max_num_batched_tokens);
    let graphs = num_capture_sizes(largest) + num_capture_sizes(config.max_num_seqs.min(largest));
    u64::from(graphs) * u64::from(stage.num_layers()) * CUDA_GRAPH_BYTES_PER_LAYER
}

/// How many of vLLM's capture sizes are at most `largest`: 1, 2, 4, then every 8 below 256, then
/// every 16 (`VllmConfig._set_cudagraph_sizes`).
fn num_capture_sizes(largest: u32) -> u32 {
    let small = [1, 2, 4].into_iter().filter(|&size| size <= largest).count() as u32;
    let eights = largest.min(248) / 8;
    let sixteens = if largest >= 256 { (largest - 256) / 16 + 1 } else { 0 };
    small + eights + sixteens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Dtype;

    fn config() -> MemoryConfig {
        MemoryConfig {
            gpu_memory_utilization: 0.9,
            tensor_parallel_size: 1,
            data_parallel_size: 1,
            pipeline_parallel_size: 1,
            block_size: 16,
            max_num_batched_tokens: 2048,
            max_num_seqs: 256,
            estimate_cudagraphs: false,
            has_draft_head: false,
        }
    }

    fn size(model: &str, gpu: &str, config: &MemoryConfig) -> Result<KvCacheSize, SizingError> {
        size_kv_cache(&Model::find(model).unwrap(), Gpu::find(gpu).unwrap(), config)
    }

    fn assert_within(size: &KvCacheSize, block_size: u32, measured_tokens: u64, tolerance: f64) {
        let tokens = u64::from(size.num_gpu_blocks) * u64::from(block_size);
        let error = tokens as f64 / measured_tokens as f64 - 1.0;
        eprintln!("{tokens} tokens against {measured_tokens}: {:+.1} %", error * 100.0);
        assert!(error.abs() <= tolerance, "{error}");
    }

    /// vLLM 0.19.0, which did not yet take graphs off: 2588 blocks of 16 (engine.json).
    #[test]
    fn llama_on_rtx_4090_as_measured() {
        assert_within(&size("Llama-3.1-8B", "RTX-4090", &config()).unwrap(), 16, 41_408, 0.03);
    }

    /// llm-d's capacity benchmark of 2025: 307,328 tokens on two H100, blocks of 64, the server's
    /// defaults for that GPU.
    #[test]
    fn qwen3_32b_on_two_h100_as_measured() {
        let config = MemoryConfig {
            tensor_parallel_size: 2,
            block_size: 64,
            max_num_batched_tokens: 8192,
            max_num_seqs: 1024,
            ..config()
        };
        assert_within(&size("Qwen3-32B", "H100", &config).unwrap(), 64, 307_328, 0.03);
    }

    /// A log of vLLM 0.21 or newer in LMCache's issue 3430: Qwen3-8B on a 24 GB GPU whose total is
    /// the RTX 4090's, graphs taken off, 46,368 tokens.
    #[test]
    fn qwen3_8b_on_rtx_4090_as_reported() {
        let config = MemoryConfig { gpu_memory_utilization: 0.9764, estimate_cudagraphs: true, ..config() };
        assert_within(&size("Qwen3-8B", "RTX-4090", &config).unwrap(), 16, 46_368, 0.06);
    }

    #[test]
    fn blocks_divide_what_is_left() {
        let size = size("Llama-3.1-8B", "H100", &config()).unwrap();
        assert_eq!(size.bytes_per_block, 16 * 131_072);
        assert_eq!(u64::from(size.num_gpu_blocks), size.available_bytes / size.bytes_per_block);
        let parts = size.weight_bytes
            + size.activation_bytes
            + size.cudagraph_bytes
            + size.non_torch_bytes
            + size.available_bytes;
        assert_eq!(parts, size.requested_bytes);
    }

    /// A decoder layer of Llama-3.1-8B has 218,112,000 parameters (two projections of 4096 x 4096, two of 4096 x
    /// 1024, three of 4096 x 14336, two norms), and the head joins two vectors of 4096 into one; both in bf16.
    #[test]
    fn a_draft_head_takes_weights_and_a_layer_of_every_block() {
        let config = MemoryConfig { has_draft_head: true, ..config() };
        let with = size("Llama-3.1-8B", "H100", &config).unwrap();
        let without = size("Llama-3.1-8B", "H100", &self::config()).unwrap();
        let layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096;
        assert_eq!(with.weight_bytes - without.weight_bytes, 2 * (layer + 2 * 4096 * 4096));
        assert_eq!((with.bytes_per_block, without.bytes_per_block), (33 * 16 * 4096, 32 * 16 * 4096));
        // The last stage of a pipeline alone has it.
        let two = MemoryConfig { pipeline_parallel_size: 2, ..config };
        assert_eq!(size("Llama-3.1-8B", "H100", &two).unwrap().bytes_per_block, 17 * 16 * 4096);
    }

    /// vLLM splits gpt-oss into 18 full and 18 sliding layers that share blocks.
    #[test]
    fn mixed_attention_shares_blocks_between_groups() {
        let gpt_oss = Model::find("gpt-oss-120b").unwrap();
        assert_eq!(gpt_oss.num_layers_per_kv_cache_group(), 18);
        let mut model = gpt_oss;
        let layers = &mut model.sliding_window.as_mut().unwrap().layers;
        // 12 against 24: two to one.
        layers.iter_mut().enumerate().for_each(|(layer, slides)| *slides = layer % 3 != 0);
        assert_eq!(model.num_layers_per_kv_cache_group(), 12);
        // 16 against 20: padded to the larger.
        let layers = &mut model.sliding_window.as_mut().unwrap().layers;
        layers.iter_mut().enumerate().for_each(|(layer, slides)| *slides = layer < 20);
        assert_eq!(model.num_layers_per_kv_cache_group(), 20);
        model.sliding_window = None;
        assert_eq!(model.num_layers_per_kv_cache_group(), 36);
    }

    /// The counts that vLLM logs: 51 sizes up to 512, 35 up to 256.
    #[test]
    fn capture_sizes_are_vllms() {
        assert_eq!(num_capture_sizes(512), 51);
        assert_eq!(num_capture_sizes(256), 35);
        assert_eq!(num_capture_sizes(16), 5);
        assert_eq!(num_capture_sizes(1), 1);
    }

    #[test]
    fn what_does_not_fit_says_what_is_missing() {
        let error = size("Llama-3.1-70B", "H100", &config()).unwrap_err();
        let message = error.to_string();
        let SizingError::DoesNotFit { missing_bytes, fitting_tensor_parallel_size, .. } = error else {
            panic!("{error}")
        };
        // 141 GB of weights against 0.9 x 85 GB.
        assert!((64_000_000_000..70_000_000_000).contains(&missing_bytes), "{missing_bytes}");
        assert_eq!(fitting_tensor_parallel_size, Some(2));
        assert!(message.contains("use `tensor_parallel_size: 2`, a GPU with more memory, or weights in fp8"));
        let fp8 = Model::find("Llama-3.1-70B").unwrap().with_weight_dtype(Dtype::Fp8);
        assert!(size_kv_cache(&fp8, Gpu::find("H200").unwrap(), &config()).is_ok());
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let broken = |edit: fn(&mut MemoryConfig)| {
            let mut config = config();
            edit(&mut config);
            size("Llama-3.1-8B", "H100", &config).unwrap_err().to_string()
        };
        assert!(broken(|c| c.gpu_memory_utilization = 1.5).contains("`gpu_memory_utilization` is 1.5"));
        assert!(broken(|c| c.gpu_memory_utilization = f64::NAN).contains("NaN"));
        assert!(broken(|c| c.block_size = 0).contains("`block_size` is 0"));
        assert!(broken(|c| c.tensor_parallel_size = 3).contains("32 attention and 8 KV heads"));
        let huge = broken(|c| c.block_size = u32::MAX);
        assert!(huge.contains("does not fit"), "{huge}");
        let huge = broken(|c| c.max_num_batched_tokens = u32::MAX);
        assert!(huge.contains("does not fit"), "{huge}");
    }

    #[test]
    fn engine_cores_share_experts_and_nothing_else() {
        let config = MemoryConfig { max_num_seqs: 64, ..config() };
        let of = |model: &str, dp| {
            let config = MemoryConfig { data_parallel_size: dp, ..config.clone() };
            size(model, "H200", &config).unwrap()
        };
        assert_eq!(of("Llama-3.1-8B", 4), of("Llama-3.1-8B", 1));
        let (one, four) = (of("Qwen3-30B-A3B", 1), of("Qwen3-30B-A3B", 4));
        // 128 experts in 48 layers, 3 x 2,048 x 768 values of two bytes: three quarters are elsewhere.
        assert_eq!(one.weight_bytes - four.weight_bytes, 48 * 128 * 3 * 2_048 * 768 * 2 * 3 / 4);
        assert!(four.activation_bytes > one.activation_bytes);
        assert!(four.num_gpu_blocks > one.num_gpu_blocks);
    }
}
