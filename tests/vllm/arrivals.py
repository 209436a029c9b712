"""vLLM's request for a request of the case."""

from collections.abc import Callable
from typing import Any

import torch
from case import expand
from connector import KV_PARAMS_KEY
from pull import transfer_params
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request


def make_request(
    spec: dict[str, Any], index: int, block_hasher: Callable | None
) -> Request:
    """The request with the position `index` in the list of the case."""
    embeds = _prompt_embeds(spec)
    return Request(
        request_id=spec["id"],
        prompt_token_ids=None if embeds is not None else expand(spec["prompt"]),
        prompt_embeds=embeds,
        sampling_params=_sampling_params(spec),
        pooling_params=None,
        arrival_time=spec.get("arrival_time", float(index)),
        mm_features=[
            MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=item["identifier"],
                mm_position=PlaceholderRange(item["offset"], item["length"]),
            )
            for item in spec.get("mm", ())
        ],
        lora_request=_lora_request(spec),
        cache_salt=spec.get("cache_salt"),
        priority=spec.get("priority", 0),
        session_id=spec.get("session_id"),
        block_hasher=block_hasher,
    )


def _sampling_params(spec: dict[str, Any]) -> SamplingParams:
    output_length = sum(length for _, length in spec["output"])
    extra_args: dict[str, Any] = {}
    if "kv_cache_report_mode" in spec:
        extra_args["kv_cache_report_mode"] = spec["kv_cache_report_mode"]
    if "pull" in spec:
        extra_args["kv_transfer_params"] = transfer_params(spec)
    if "kv" in spec:
        extra_args["kv_transfer_params"] = {KV_PARAMS_KEY: spec["kv"]}
    return SamplingParams(
        max_tokens=spec.get("max_tokens", output_length),
        stop_token_ids=spec.get("stop_token_ids"),
        skip_reading_prefix_cache=spec.get("skip_reading_prefix_cache", False),
        extra_args=extra_args or None,
    )


def _lora_request(spec: dict[str, Any]) -> LoRARequest | None:
    lora = spec.get("lora")
    if lora is None:
        return None
    return LoRARequest(lora["name"], lora["id"], lora["path"])


def _prompt_embeds(spec: dict[str, Any]) -> torch.Tensor | None:
    embeds = spec.get("prompt_embeds")
    if embeds is None:
        return None
    rows, columns, start = embeds["num_tokens"], embeds["dim"], embeds["start"]
    values = torch.arange(start, start + rows * columns, dtype=torch.float32)
    return values.reshape(rows, columns)
