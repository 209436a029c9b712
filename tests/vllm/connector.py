"""A KV connector whose store, delays and failures are those of the case.

It sits on vLLM's own connector interface on the scheduler side. There is no
worker: `take_output` says what the workers would have reported.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

# Requests carry their `kv` object under this key of `kv_transfer_params`,
# vLLM's own way to hand parameters to a connector.
KV_PARAMS_KEY = "case"

SENDING_STATUSES = (
    RequestStatus.FINISHED_STOPPED,
    RequestStatus.FINISHED_LENGTH_CAPPED,
)


class SchedulerSide(KVConnectorBase_V1, SupportsHMA):
    """The worker side of the interface is empty: there is no worker."""

    def start_load_kv(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("no worker")

    def wait_for_layer_load(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("no worker")

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("no worker")

    def wait_for_save(self) -> None:
        raise NotImplementedError("no worker")


class CaseConnector(SchedulerSide):
    """Follows `requests[].kv` of the case."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        # Set by the engine: the `schedule()` call that runs, and the call
        # whose output is processed.
        self.schedule_index = 0
        self.processed_index = 0
        self._num_lookups: dict[str, int] = {}
        # Requests with a failed load: nothing is offered to them again.
        self._failed: set[str] = set()
        # Request id -> first call whose output may report it.
        self._loading: dict[str, int] = {}
        self._sending: dict[str, int] = {}
        # What fails of a load: the blocks by request id, for loads within a
        # step also by call, and the requests whose load fails as a whole.
        self._async_failures: dict[str, set[int]] = {}
        self._sync_failures: dict[int, dict[str, set[int]]] = {}
        self._failing_requests: set[str] = set()

    @staticmethod
    def _kv(request: Request) -> dict[str, Any]:
        return (request.kv_transfer_params or {}).get(KV_PARAMS_KEY, {})

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        kv = self._kv(request)
        if not kv or request.request_id in self._failed:
            return 0, False
        lookup = self._num_lookups.get(request.request_id, 0)
        self._num_lookups[request.request_id] = lookup + 1
        if lookup < kv.get("defer_lookups", 0):
            return None, False
        is_async = kv.get("async", False)
        # A load within the step must leave a token to compute; an
        # asynchronous one may cover all, the scheduler takes one back.
        limit = request.num_tokens if is_async else request.num_tokens - 1
        matched = min(kv.get("external_tokens", 0), limit) - num_computed_tokens
        matched = max(0, matched)
        return matched, is_async and matched > 0

    def update_state_after_alloc(
        self, request: Request, blocks: Any, num_external_tokens: int
    ) -> None:
        if num_external_tokens == 0:
            return
        kv = self._kv(request)
        req_id = request.request_id
        table = blocks.get_block_ids()[0]
        failing = {table[i] for i in kv.get("fail_blocks", ()) if i < len(table)}
        if kv.get("async", False):
            self._loading[req_id] = self.schedule_index + kv.get("load_steps", 1)
            self._async_failures[req_id] = failing
            if kv.get("fail_request", False):
                self._failing_requests.add(req_id)
        elif failing:
            self._sync_failures.setdefault(self.schedule_index, {})[req_id] = failing

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        send_steps = self._kv(request).get("send_steps")
        if not send_steps or request.status not in SENDING_STATUSES:
            return False, None
        self._sending[request.request_id] = self.processed_index + send_steps
        return True, None

    def take_output(self) -> KVConnectorOutput | None:
        """What the workers report with the output of call `processed_index`."""
        now = self.processed_index
        invalid: set[int] = set()
        for req_id, blocks in self._sync_failures.pop(now, {}).items():
            self._failed.add(req_id)
            invalid |= blocks
        received = take_due(self._loading, now)
        failed = [req_id for req_id in received if req_id in self._failing_requests]
        self._failed.update(failed)
        for req_id in received:
            blocks = self._async_failures.pop(req_id)
            if blocks:
                self._failed.add(req_id)
                invalid |= blocks
        sent = take_due(self._sending, now)
        if not (received or sent or invalid):
            return None
        # Lists for the ids, so that vLLM walks them in the order of the loads.
        return KVConnectorOutput(
            finished_sending=sent,
            finished_recving=received,
            invalid_block_ids=invalid,
            failed_recving=failed,
        )


def take_due(waiting: dict[str, int], now: int) -> list[str]:
    """Take the ids whose time has come out of `waiting`, oldest first."""
    ids = [req_id for req_id, due in waiting.items() if due <= now]
    for req_id in ids:
        del waiting[req_id]
    return ids
