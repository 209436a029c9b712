"""vLLM's own pull connector, with a worker whose reads take what the case says.

The scheduler's side is `NixlPullConnectorScheduler` itself. There is no worker
and no network: `take_output` says what the workers would have reported.
"""

from typing import Any

from connector import KV_PARAMS_KEY, SchedulerSide, take_due
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (
    NixlPullConnectorScheduler,
)
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

# What a proxy sends with the two parts of a request
# (`examples/disaggregated/disaggregated_serving` of vLLM).
PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}
DECODE = {
    "do_remote_decode": False,
    "do_remote_prefill": True,
    "remote_engine_id": "prefill",
    "remote_host": "prefill",
    "remote_port": 1,
    "tp_size": 1,
}


def transfer_params(spec: dict[str, Any]) -> dict[str, Any]:
    """`kv_transfer_params` of a request with the key `pull`."""
    pull = spec["pull"]
    if pull["part"] == "prefill":
        return {**PREFILL, KV_PARAMS_KEY: pull}
    # Which blocks the other side has does not matter to the scheduler.
    remote = {"remote_block_ids": [[1]], "remote_request_id": spec["id"]}
    return {**DECODE, **remote, KV_PARAMS_KEY: pull}


class PullConnector(SchedulerSide):
    """Follows `requests[].pull` of the case."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.nixl = NixlPullConnectorScheduler(
            vllm_config, "decode", kv_cache_config
        )
        # Set by the engine: the `schedule()` call that runs, and the call
        # whose output is processed.
        self.schedule_index = 0
        self.processed_index = 0
        # Request id -> first call whose output may report it.
        self._reading: dict[str, int] = {}
        self._sending: dict[str, int] = {}
        self._failing: set[str] = set()
        self._reads: list[list[Any]] = []

    @staticmethod
    def _pull(request: Request) -> dict[str, Any]:
        return (request.kv_transfer_params or {}).get(KV_PARAMS_KEY, {})

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int, bool]:
        return self.nixl.get_num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: Request, blocks: Any, num_external_tokens: int
    ) -> None:
        self.nixl.update_state_after_alloc(request, blocks, num_external_tokens)
        if num_external_tokens > 0:
            pull = self._pull(request)
            due = self.schedule_index + pull["steps"]
            self._reading[request.request_id] = due
            if pull.get("fail", False):
                self._failing.add(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        meta = self.nixl.build_connector_meta(scheduler_output)
        for req_id, read in meta.reqs_to_recv.items():
            num_blocks = sum(len(group) for group in read.local_block_ids)
            self._reads.append([req_id, num_blocks, req_id in self._reading])
        return meta

    def take_reads(self) -> list[list[Any]]:
        """Reads that were planned: request, blocks, whether it waits."""
        reads, self._reads = self._reads, []
        return reads

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        self.nixl.update_connector_output(connector_output)

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        kept, params = self.nixl.request_finished(request, block_ids)
        if kept:
            due = self.processed_index + self._pull(request)["steps"]
            self._sending[request.request_id] = due
        return kept, params

    def take_output(self) -> KVConnectorOutput | None:
        """What the workers report with the output of call `processed_index`."""
        received = take_due(self._reading, self.processed_index)
        sent = take_due(self._sending, self.processed_index)
        if not (received or sent):
            return None
        return KVConnectorOutput(
            finished_sending=sent,
            finished_recving=received,
            invalid_block_ids=set(),
            failed_recving=[req_id for req_id in received if req_id in self._failing],
        )
