"""The log: one JSON object for each thing that happens."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from case import compress
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request
from vllm.v1.spec_decode.metrics import SpecDecodingStats

MASK64 = (1 << 64) - 1
FREE_MULTIPLIER = 0x9E3779B97F4A7C15
FREE_HEAD_LENGTH = 8
FIRST_HASHES = 4


class Log:
    """Collects the lines.

    With `full_every` above 1 every line has a digest, and only every so many
    are written out before it.
    """

    def __init__(self, full_every: int) -> None:
        self._full_every = full_every
        self._num_entries = 0
        self._lines: list[str] = []

    def write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":"))
        is_frame = entry["kind"] in ("start", "end")
        if is_frame or self._num_entries % self._full_every == 0:
            self._lines.append(line)
        if not is_frame and self._full_every > 1:
            digest = hashlib.sha256(line.encode()).hexdigest()[:16]
            self._lines.append(json.dumps({"d": digest}, separators=(",", ":")))
        self._num_entries += 1

    def text(self) -> str:
        return "".join(line + "\n" for line in self._lines)


def mix(x: int) -> int:
    """The finalizer of the log's digests (FORMAT.md section 6)."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK64
    return x ^ (x >> 31)


class PoolState:
    """What the lines say about the block pool."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        powers = np.full(pool.num_gpu_blocks, FREE_MULTIPLIER, dtype=np.uint64)
        self._powers = np.multiply.accumulate(powers)
        # A pair comes back in line after line, so its digest is kept.
        self._pair_digests: dict[tuple[bytes, int], int] = {}

    def entry(self) -> dict[str, Any]:
        free = [b.block_id for b in self._pool.free_block_queue.get_all_free_blocks()]
        cache = self._pool.cached_block_hash_to_block._cache
        num_pairs = 0
        cached_digest = 0
        for key, blocks in cache.items():
            for block_id in blocks if isinstance(blocks, dict) else (blocks.block_id,):
                num_pairs += 1
                cached_digest += self._pair_digest(key, block_id)
        return {
            "free": len(free),
            "free_head": free[:FREE_HEAD_LENGTH],
            "free_digest": f"{self._free_digest(free):016x}",
            "hashes": len(cache),
            "cached": num_pairs,
            "cached_digest": f"{cached_digest & MASK64:016x}",
        }

    def _free_digest(self, free: list[int]) -> int:
        ids = np.array(free, dtype=np.uint64) + np.uint64(1)
        return int((ids * self._powers[: len(free)]).sum(dtype=np.uint64))

    def _pair_digest(self, key: bytes, block_id: int) -> int:
        digest = self._pair_digests.get((key, block_id))
        if digest is None:
            # A key is the block hash and four bytes of group id.
            block_hash, group_id = key[:-4], int.from_bytes(key[-4:], "big")
            head = int.from_bytes(block_hash[:8], "little")
            tail = int.from_bytes(block_hash[-8:], "little")
            digest = mix(head ^ mix(tail ^ mix(group_id << 32 | block_id)))
            self._pair_digests[key, block_id] = digest
        return digest


def queues(scheduler: Scheduler) -> dict[str, list[str]]:
    return {
        "running": _ids(scheduler.running),
        "waiting": _ids(scheduler.waiting),
        "holding": _ids(scheduler.kv_holding_waiting),
    }


def _ids(requests: Iterable[Request]) -> list[str]:
    return [request.request_id for request in requests]


def scheduled_entries(
    output: SchedulerOutput, requests: dict[str, Request], with_drafts: bool
) -> list[dict[str, Any]]:
    """The requests of a `schedule()` call, in the order they got their tokens."""
    new = {data.req_id: data for data in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    cached_index = {req_id: i for i, req_id in enumerate(cached.req_ids)}
    entries = []
    for req_id, num_tokens in output.num_scheduled_tokens.items():
        if req_id in new:
            num_computed = new[req_id].num_computed_tokens
            blocks = new[req_id].block_ids
        else:
            index = cached_index[req_id]
            num_computed = cached.num_computed_tokens[index]
            blocks = cached.new_block_ids[index]
        # Which of vLLM's two lists holds a resumed request depends on the
        # model runner; that it was preempted before does not.
        if req_id not in new and req_id not in cached.resumed_req_ids:
            kind = "running"
        else:
            kind = "resumed" if requests[req_id].num_preemptions else "new"
        entry = {
            "id": req_id,
            "kind": kind,
            "num_tokens": num_tokens,
            "num_computed": num_computed,
            "blocks": None if blocks is None else [list(ids) for ids in blocks],
        }
        if with_drafts:
            drafts = output.scheduled_spec_decode_tokens.get(req_id, ())
            entry["num_draft"] = len(drafts)
        entries.append(entry)
    return entries


def output_entry(output: EngineCoreOutput) -> dict[str, Any]:
    finish = output.finish_reason
    entry: dict[str, Any] = {
        "id": output.request_id,
        "tokens": list(output.new_token_ids),
        "finish": None if finish is None else str(finish),
    }
    prefill = output.prefill_stats
    if prefill is not None:
        entry["prefill"] = [
            prefill.num_prompt_tokens,
            prefill.num_local_cached_tokens,
            prefill.num_external_cached_tokens,
            prefill.num_cache_creation_tokens,
        ]
    return entry


def finished_entry(request: Request) -> dict[str, Any]:
    hashes = request.block_hashes
    return {
        "id": request.request_id,
        "status": request.status.name,
        "num_tokens": request.num_tokens,
        "num_output_tokens": request.num_output_tokens,
        "num_computed_tokens": request.num_computed_tokens,
        "num_preemptions": request.num_preemptions,
        "num_hashes": len(hashes),
        "hashes": [block_hash.hex() for block_hash in hashes[:FIRST_HASHES]],
        "last_hash": hashes[-1].hex() if hashes else None,
    }


def stats_entry(stats: PrefixCacheStats) -> list[int]:
    return [
        int(stats.reset),
        stats.requests,
        stats.queries,
        stats.hits,
        stats.preempted_requests,
        stats.preempted_queries,
        stats.preempted_hits,
    ]


def event_entry(event: KVCacheEvent) -> dict[str, Any]:
    if isinstance(event, BlockStored):
        return {
            "type": "BlockStored",
            "block_hashes": _plain(event.block_hashes),
            "parent_block_hash": _plain_hash(event.parent_block_hash),
            "token_ids": compress(event.token_ids),
            "block_size": event.block_size,
            "lora_id": event.lora_id,
            "lora_name": event.lora_name,
            "medium": event.medium,
            "extra_keys": _extra_keys(event.extra_keys),
            "group_idx": event.group_idx,
            "kv_cache_spec_kind": event.kv_cache_spec_kind,
            "kv_cache_spec_sliding_window": event.kv_cache_spec_sliding_window,
            "session_id": event.session_id,
            "lookahead_token_ids": event.lookahead_token_ids,
        }
    if isinstance(event, BlockRemoved):
        return {
            "type": "BlockRemoved",
            "block_hashes": _plain(event.block_hashes),
            "group_idx": event.group_idx,
            "medium": event.medium,
        }
    return {"type": type(event).__name__}


def _plain(hashes: list[Any]) -> list[Any]:
    return [_plain_hash(block_hash) for block_hash in hashes]


def _plain_hash(block_hash: Any) -> Any:
    return block_hash.hex() if isinstance(block_hash, bytes) else block_hash


def _extra_keys(extra_keys: Any) -> Any:
    """JSON has neither bytes nor tuples."""
    if isinstance(extra_keys, bytes):
        return {"bytes": extra_keys.hex()}
    if isinstance(extra_keys, (list, tuple)):
        return [_extra_keys(key) for key in extra_keys]
    return extra_keys


def spec_stats_entry(stats: SpecDecodingStats | None) -> list[int] | None:
    if stats is None:
        return None
    return [stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens]


def kv_entry(output: KVConnectorOutput) -> dict[str, Any]:
    return {
        "finished_recving": list(output.finished_recving or ()),
        "finished_sending": list(output.finished_sending or ()),
        "invalid_block_ids": sorted(output.invalid_block_ids),
        "failed_recving": list(output.failed_recving),
    }
