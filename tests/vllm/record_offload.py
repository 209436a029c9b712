"""Records what vLLM's offloading connector stores and loads of each KV cache group.

    cd tests/vllm && python record_offload.py > offload.jsonl

Runs `OffloadingConnectorScheduler` with vLLM's own CPU manager under vLLM's own scheduler, without a GPU:
copies are done with the output of the step after the one that planned them. One request after the other,
each to its end, so that what it finds in the store does not depend on the time of copies. A line for each
engine:

    {"name", "engine", "requests": [{"prompt", "output", "reset", "local", "external", "loads", "stores"}]}

`reset` empties the GPU's prefix cache before the request. `local` and `external` are the tokens that its
admission found, `loads` and `stores` the blocks of each group that were read and written for it, as indices
in its block table, ascending.
"""

import json
import random
from typing import Any

from case import Case
from connector import SchedulerSide
from engine import Engine
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import (
    build_offloading_config,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.outputs import KVConnectorOutput

GROUPS = {
    "full": [{"kind": "full"}],
    "chunked_local": [{"kind": "chunked_local", "chunk_size": 64}],
    "full_and_chunked_local": [{"kind": "full"}, {"kind": "chunked_local", "chunk_size": 64}],
    "chunk_of_no_whole_blocks": [{"kind": "full"}, {"kind": "chunked_local", "chunk_size": 40}],
    "full_and_window": [{"kind": "full"}, {"kind": "sliding_window", "sliding_window": 40}],
    "mamba": [{"kind": "mamba", "cache_mode": "align"}],
    "full_and_mamba": [{"kind": "full"}, {"kind": "mamba", "cache_mode": "align"}],
    "full_and_two_mamba": [{"kind": "full"}] + [{"kind": "mamba", "cache_mode": "align"}] * 2,
}
BLOCK_SIZE = 16


class OffloadConnector(SchedulerSide):
    """The scheduler's side is vLLM's; `take_output` plays the workers."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        spec = CPUOffloadingSpec(build_offloading_config(vllm_config, kv_cache_config))
        self.offloading = OffloadingConnectorScheduler(spec, vllm_config, kv_cache_config)
        self.schedule_index = 0
        self.processed_index = 0
        # Job -> the request that waits for it, or None, and the first call whose output reports it.
        self._jobs: dict[int, tuple[str | None, int]] = {}
        self.copies: dict[str, dict[str, list[list[int]]]] = {}
        self.found: dict[str, tuple[int, int]] = {}
        self.num_groups = len(kv_cache_config.kv_cache_groups)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        matched = self.offloading.get_num_new_matched_tokens(request, num_computed_tokens)
        self.found[request.request_id] = (num_computed_tokens, matched[0])
        return matched

    def on_new_request(self, request: Any) -> None:
        self.offloading.on_new_request(request)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self.offloading.update_state_after_alloc(request, blocks, num_external_tokens)

    def _add(self, kind: str, job: Any, spec: Any) -> None:
        kinds = self.copies.setdefault(
            job.req_id, {name: [[] for _ in range(self.num_groups)] for name in ("loads", "stores")}
        )
        for group, (size, first) in enumerate(zip(spec.group_sizes, spec.block_indices)):
            kinds[kind][group].extend(range(first, first + size))

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        meta = self.offloading.build_connector_meta(scheduler_output)
        due = self.schedule_index + 1
        for job_id, job in meta.load_jobs.items():
            self._add("loads", job, job.dst_spec)
            self._jobs[job_id] = (job.req_id, due)
        for job_id, job in meta.store_jobs.items():
            self._add("stores", job, job.src_spec)
            self._jobs[job_id] = (None, due)
        return meta

    def has_pending_push_work(self) -> bool:
        return self.offloading.has_pending_push_work()

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        self.offloading.update_connector_output(connector_output)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.offloading.request_finished(request)

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        return self.offloading.request_finished(request)

    def take_output(self) -> KVConnectorOutput | None:
        due = [job for job, (_, due) in self._jobs.items() if due <= self.processed_index]
        if not due:
            return None
        waiting = {self._jobs[job][0] for job in due} - {None}
        for job in due:
            del self._jobs[job]
        return KVConnectorOutput(
            finished_sending=set(),
            finished_recving=waiting,
            invalid_block_ids=set(),
            kv_connector_worker_meta=OffloadingWorkerMetadata(completed_jobs={job: 1 for job in due}),
        )


def requests_of(rng: random.Random) -> list[dict[str, Any]]:
    """Prompts that go on where earlier ones were, or leave them."""
    requests, known = [], [[]]
    for number in range(14):
        prompt = list(rng.choice(known))
        cut = rng.choice([len(prompt), len(prompt), rng.randrange(len(prompt) + 1)])
        prompt = prompt[:cut]
        fresh = rng.choice([1, 15, 16, 17, 33, 48, 70, 100, 150])
        prompt += range(10_000 * (number + 1), 10_000 * (number + 1) + fresh)
        output = [5_000_000 + 1_000 * number + i for i in range(rng.choice([1, 2, 16, 17, 30]))]
        requests.append({"prompt": prompt, "output": output, "reset": rng.random() < 0.7})
        known.append(prompt + output)
    return requests


def segments(tokens: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for token in tokens:
        if found and found[-1][0] + found[-1][1] == token:
            found[-1][1] += 1
        else:
            found.append([token, 1])
    return found


def record(name: str, mode: str, seed: int) -> dict[str, Any]:
    requests = requests_of(random.Random(seed))
    engine = {
        "mode": mode,
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks": 400,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 96,
        "max_model_len": 2048,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "enable_prefix_caching": True,
        "prefix_caching_hash_algo": "sha256",
        "python_hash_seed": None,
        "policy": "fcfs",
        "enable_kv_cache_events": False,
        "use_int_block_hashes": True,
        "kv_cache_groups": GROUPS[name],
        "kv_connector": {"kind": "offload", "role": "kv_both", "load_failure_policy": "recompute", "extra_config": {"cpu_bytes_to_use": 1 << 30, "offload_prompt_only": False}},
    }
    case = {"name": name, "note": "", "engine": engine, "requests": [], "actions": []}
    runner = Engine(Case(case))
    lines = []
    for number, request in enumerate(requests):
        if request["reset"]:
            assert runner.scheduler.reset_prefix_cache()
        spec = {
            "id": str(number),
            "arrival_step": runner.step,
            "prompt": segments(request["prompt"]),
            "output": segments(request["output"]),
        }
        runner.case.requests = [spec]
        runner.run()
        runner.step += 1
        connector = runner.connector
        copies = connector.copies.get(spec["id"], {})
        none = [[] for _ in GROUPS[name]]
        local, external = connector.found[spec["id"]]
        lines.append(
            {
                "prompt": spec["prompt"],
                "output": spec["output"],
                "reset": request["reset"],
                "local": local,
                "external": external,
                "loads": [sorted(blocks) for blocks in copies.get("loads", none)],
                "stores": [sorted(blocks) for blocks in copies.get("stores", none)],
            }
        )
    return {"name": f"{name}_{mode}_{seed}", "engine": engine, "requests": lines}


if __name__ == "__main__":
    for name in GROUPS:
        for mode in ("sync", "async"):
            for seed in (1, 2):
                print(json.dumps(record(name, mode, seed), separators=(",", ":")))
