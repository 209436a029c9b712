"""vLLM's own configuration objects for the engine of a case.

Everything derived (lookahead tokens, batches in flight, block sizes, ...) is
left to vLLM, so that another version of it shows its own rules.
"""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from case import Case
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    LoRAConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.v1.core.kv_cache_utils import (
    resolve_cache_hit_alignment_tokens,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)

# A model that is never loaded: vLLM reads its description only. One KV head,
# because context parallelism wants more ranks than heads; positions beyond
# any case, because vLLM refuses a longer `max_model_len`.
MODEL_DESCRIPTION = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 16,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 32000,
    "max_position_embeddings": 2**30,
    "torch_dtype": "float32",
}
TARGET_ARCHITECTURE = "LlamaForCausalLM"
DRAFT_ARCHITECTURE = "EagleLlamaForCausalLM"


@functools.cache
def _model_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="kvsim-model-")


@functools.cache
def _model_path(architecture: str) -> str:
    path = Path(_model_folder().name, architecture)
    path.mkdir()
    description = MODEL_DESCRIPTION | {"architectures": [architecture]}
    path.joinpath("config.json").write_text(json.dumps(description))
    return str(path)


def vllm_config(case: Case) -> VllmConfig:
    """The configuration that a user of vLLM would have given."""
    engine = case.engine
    model = ModelConfig(
        model=_model_path(TARGET_ARCHITECTURE),
        max_model_len=engine["max_model_len"],
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
    )
    dcp_world_size = engine.get("dcp_world_size", 1)
    parallel = ParallelConfig(
        tensor_parallel_size=dcp_world_size,
        decode_context_parallel_size=dcp_world_size,
        # Nothing is launched; without a device vLLM cannot choose one itself.
        distributed_executor_backend="mp" if dcp_world_size > 1 else "uni",
    )
    cache = CacheConfig(
        block_size=engine["block_size"],
        prefix_match_unit=engine.get("hash_block_size"),
        enable_prefix_caching=engine["enable_prefix_caching"],
        prefix_caching_hash_algo=engine["prefix_caching_hash_algo"],
        # All checkpoints of windows and states are kept, as the KV cache groups
        # below say too; vLLM's default keeps some of them.
        prefix_cache_retention_interval=None,
    )
    scheduler = SchedulerConfig(
        max_model_len=engine["max_model_len"],
        is_encoder_decoder=False,
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_num_scheduled_tokens=engine.get("max_num_scheduled_tokens"),
        enable_chunked_prefill=engine["enable_chunked_prefill"],
        long_prefill_token_threshold=engine["long_prefill_token_threshold"],
        long_prefill_token_threshold_adaptive=engine.get(
            "long_prefill_token_threshold_adaptive", False
        ),
        scheduler_reserve_full_isl=engine.get("scheduler_reserve_full_isl", True),
        watermark=engine.get("watermark", 0.0),
        policy=engine["policy"],
        async_scheduling=case.is_async,
    )
    config = VllmConfig(
        model_config=model,
        parallel_config=parallel,
        cache_config=cache,
        scheduler_config=scheduler,
        device_config=DeviceConfig("cpu"),
        speculative_config=_speculative_config(engine, model, parallel),
        lora_config=_lora_config(engine),
        kv_events_config=KVEventsConfig(
            enable_kv_cache_events=engine["enable_kv_cache_events"],
            publisher="null",
        ),
        kv_transfer_config=_kv_transfer_config(engine),
    )
    # Off by default on a machine without a device.
    config.scheduler_config.disable_hybrid_kv_cache_manager = False
    # EngineCore sets these from the KV cache groups of the model, and our
    # stand-in for a model has none.
    config.cache_config.num_gpu_blocks = engine["num_gpu_blocks"]
    if any(group["kind"] == "mamba" for group in engine["kv_cache_groups"]):
        config.cache_config.mamba_cache_mode = "align"
    return config


def _speculative_config(
    engine: dict[str, Any], model: ModelConfig, parallel: ParallelConfig
) -> SpeculativeConfig | None:
    if "num_speculative_tokens" not in engine:
        return None
    settings: dict[str, Any] = {
        "method": engine["spec_method"],
        "num_speculative_tokens": engine["num_speculative_tokens"],
        "target_model_config": model,
        "target_parallel_config": parallel,
    }
    if engine["spec_method"] == "eagle":
        settings["model"] = _model_path(DRAFT_ARCHITECTURE)
        settings["disable_lookahead_block_hashes"] = not engine.get(
            "lookahead_block_hashes", True
        )
    return SpeculativeConfig(**settings)


def _lora_config(engine: dict[str, Any]) -> LoRAConfig | None:
    if "max_loras" not in engine:
        return None
    return LoRAConfig(max_loras=engine["max_loras"])


def _kv_transfer_config(engine: dict[str, Any]) -> KVTransferConfig | None:
    connector = engine.get("kv_connector")
    if connector is None:
        return None
    name, module = {
        "pull": ("PullConnector", "pull"),
        "offload": ("OffloadConnector", "record_offload"),
    }.get(connector.get("kind"), ("CaseConnector", "connector"))
    return KVTransferConfig(
        kv_connector=name,
        kv_connector_module_path=module,
        kv_connector_extra_config=connector.get("extra_config", {}),
        kv_role=connector["role"],
        kv_load_failure_policy=connector["load_failure_policy"],
    )


def kv_cache_config(
    case: Case, config: VllmConfig
) -> tuple[KVCacheConfig, int, int]:
    """The groups of the case, the scheduler and the hash block size."""
    groups = [
        KVCacheGroupSpec([f"layer.{i}"], _group_spec(case.engine, group))
        for i, group in enumerate(case.engine["kv_cache_groups"])
    ]
    kv_cache = KVCacheConfig(case.engine["num_gpu_blocks"], [], groups)
    # As EngineCore does: the smallest block of the groups.
    config.cache_config.block_size = min(g.kv_cache_spec.block_size for g in groups)
    block_sizes = resolve_kv_cache_block_sizes(kv_cache, config)
    kv_cache.hash_block_size = block_sizes[1]
    kv_cache.cache_hit_alignment_tokens = resolve_cache_hit_alignment_tokens(
        kv_cache, config, *block_sizes
    )
    return kv_cache, *block_sizes


def _group_spec(engine: dict[str, Any], group: dict[str, Any]) -> KVCacheSpec:
    block_size = group.get("block_size", engine["block_size"])
    kind = group["kind"]
    if kind == "mamba":
        return MambaSpec(
            block_size=block_size,
            shapes=((1,),),
            dtypes=(torch.float32,),
            mamba_cache_mode=group["cache_mode"],
        )
    attention = {
        "block_size": block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
    }
    if kind == "full":
        return FullAttentionSpec(**attention)
    if kind == "sliding_window":
        return SlidingWindowSpec(**attention, sliding_window=group["sliding_window"])
    if kind == "chunked_local":
        return ChunkedLocalAttentionSpec(
            **attention, attention_chunk_size=group["chunk_size"]
        )
    raise ValueError(
        f"unknown kind of KV cache group: {kind!r}; "
        "use full, sliding_window, chunked_local or mamba"
    )
