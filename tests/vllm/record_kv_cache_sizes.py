"""How many KV cache blocks vLLM makes of a memory, and what it says of them: a line of JSON for each case.

    python record_kv_cache_sizes.py > kv_cache_sizes.jsonl

Groups, block counts, capacities and the longest request are those of vLLM's own functions, on its own
configuration of a `config.json`; no model is loaded, so the layers are named here.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.v1.core.kv_cache_planning import (
    estimate_max_model_len,
    get_global_kv_cache_groups,
    get_kv_cache_configs,
)
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_capacity,
)
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

GIB = 2**30
COMMON = {"torch_dtype": "bfloat16", "vocab_size": 32000, "intermediate_size": 4096}
LLAMA = COMMON | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
}
MISTRAL = LLAMA | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "sliding_window": 4096,
    "max_position_embeddings": 32768,
}
DEEPSEEK = COMMON | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "max_position_embeddings": 163840,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "q_lora_rank": 1536,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
}


def mixed(num_layers: int, is_sliding, window: int) -> dict[str, Any]:
    kinds = ["sliding_attention" if is_sliding(i) else "full_attention" for i in range(num_layers)]
    return COMMON | {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "num_hidden_layers": num_layers,
        "max_position_embeddings": 131072,
        "sliding_window": window,
        "layer_types": kinds,
    }


def case(config, gib, max_model_len, tokens=8192, tp=1, block_size=16, eagle=False):
    return {
        "config": config,
        "available_bytes": int(gib * GIB),
        "tensor_parallel_size": tp,
        "block_size": block_size,
        "max_model_len": max_model_len,
        "max_num_batched_tokens": tokens,
        "eagle": eagle,
    }


CASES = [
    case(LLAMA, 40, 32768),
    case(LLAMA, 40.7, 131072, tp=2, block_size=32),
    case(LLAMA, 20, 100000, tp=16),
    case(LLAMA, 40, 32768, eagle=True),
    case(MISTRAL, 12, 32768, tokens=2048),
    case(MISTRAL, 12, 1000),
    case(DEEPSEEK, 30, 163840, tp=8, block_size=64),
    case(DEEPSEEK, 5, 8192, tp=4),
    case(mixed(36, lambda i: i % 2 == 0, 128), 25, 131072),
    case(mixed(36, lambda i: i % 2 == 0, 128), 25, 131072, eagle=True),
    case(mixed(34, lambda i: i % 6 != 5, 1024), 18, 131072, tokens=2048),
    case(mixed(34, lambda i: i % 6 != 5, 1024), 18, 131072, tokens=2048, eagle=True),
    case(mixed(62, lambda i: i % 6 != 5, 512), 33, 65536, tp=4),
    case(mixed(20, lambda i: i < 9, 4096), 8, 50000),
]


def layers(case: dict[str, Any], config: VllmConfig) -> dict[str, KVCacheSpec]:
    model, parallel = config.model_config, config.parallel_config
    attention = {
        "block_size": case["block_size"],
        "num_kv_heads": model.get_num_kv_heads(parallel),
        "head_size": model.get_head_size(),
        "dtype": torch.bfloat16,
    }
    described = case["config"]
    window = described.get("sliding_window")
    kinds = described.get("layer_types")
    num_layers = described["num_hidden_layers"]
    if kinds is None:
        kinds = ["sliding_attention" if window else "full_attention"] * num_layers
    specs: dict[str, KVCacheSpec] = {}
    for index, kind in enumerate(kinds):
        name = f"model.layers.{index}.self_attn.attn"
        if model.use_mla:
            specs[name] = MLAAttentionSpec(**attention)
        elif kind == "sliding_attention":
            specs[name] = SlidingWindowSpec(**attention, sliding_window=window)
        else:
            specs[name] = FullAttentionSpec(**attention)
    if case["eagle"]:
        specs[f"model.layers.{num_layers}.self_attn.attn"] = FullAttentionSpec(
            **attention, is_draft=True
        )
    return specs


def write(folder: str, name: str, description: dict[str, Any]) -> str:
    path = Path(folder, name)
    path.mkdir()
    path.joinpath("config.json").write_text(json.dumps(description))
    return str(path)


def vllm_config(case: dict[str, Any], folder: str) -> VllmConfig:
    tp = case["tensor_parallel_size"]
    model = ModelConfig(
        model=write(folder, "model", case["config"]),
        max_model_len=case["max_model_len"],
        dtype="bfloat16",
        skip_tokenizer_init=True,
        enforce_eager=True,
    )
    parallel = ParallelConfig(
        tensor_parallel_size=tp,
        distributed_executor_backend="mp" if tp > 1 else "uni",
    )
    speculative = None
    if case["eagle"]:
        draft = LLAMA | {"architectures": ["EagleLlamaForCausalLM"], "num_hidden_layers": 1}
        speculative = SpeculativeConfig(
            method="eagle",
            model=write(folder, "draft", draft),
            num_speculative_tokens=3,
            target_model_config=model,
            target_parallel_config=parallel,
        )
    config = VllmConfig(
        model_config=model,
        parallel_config=parallel,
        cache_config=CacheConfig(block_size=case["block_size"]),
        scheduler_config=SchedulerConfig(
            max_model_len=case["max_model_len"],
            is_encoder_decoder=False,
            max_num_seqs=256,
            max_num_batched_tokens=case["max_num_batched_tokens"],
            async_scheduling=True,
        ),
        device_config=DeviceConfig("cpu"),
        speculative_config=speculative,
    )
    # Off by default on a machine without a device.
    config.scheduler_config.disable_hybrid_kv_cache_manager = False
    config.cache_config.block_size = case["block_size"]
    return config


def record(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kvsim-sizes-") as folder:
        config = vllm_config(case, folder)
        specs = layers(case, config)
        available = case["available_bytes"]
        # The one of FlashAttention; EngineCore asks the workers for it.
        config.cache_config.kv_cache_layout = "LBNHC"
        groups = get_global_kv_cache_groups(config, [specs])
        [cache] = get_kv_cache_configs(config, [specs], [available], groups)
        tokens, concurrency = get_kv_cache_capacity(
            config, generate_scheduler_kv_cache_config([cache])
        )
        # The null block is held back.
        usable = available - available // cache.num_blocks
        return case | {
            "group_layers": [len(group.layer_names) for group in cache.kv_cache_groups],
            "num_gpu_blocks": cache.num_blocks,
            "kv_cache_tokens": tokens,
            "max_concurrency": concurrency,
            "longest_max_model_len": longest(config, specs, usable),
        }


def longest(config: VllmConfig, specs: dict[str, KVCacheSpec], usable: int) -> int:
    model = config.model_config
    given = model.max_model_len
    # As far as the model goes.
    model.max_model_len = model.hf_text_config.max_position_embeddings
    found = estimate_max_model_len(config, specs, usable)
    model.max_model_len = given
    return found


if __name__ == "__main__":
    for one in CASES:
        json.dump(record(one), sys.stdout)
        print()
