"""The engine loop: what EngineCore does around the scheduler, without a model."""

import os
from collections import deque
from dataclasses import dataclass
from typing import Any

import log
import vllm.v1.core.kv_cache_utils as kv_cache_utils
from arrivals import make_request
from case import Case
from configure import kv_cache_config, vllm_config
from model import Model
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.metrics.stats import CachingMetrics
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FORMAT_VERSION = 1
# Encoder inputs never hold a request back.
NO_ENCODER_LIMIT = 2**30
# Steps in a row without a token after which a case is given up. Loads and
# sends of a case take far fewer.
MAX_IDLE_STEPS = 2000


class StuckError(Exception):
    """Some request of the case can never be scheduled."""


def recording(scheduler_class: type) -> type:
    """A scheduler class that keeps what its outputs do not tell."""

    class RecordingScheduler(scheduler_class):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.finished: list[dict[str, Any]] = []
            self.preempted: list[str] = []
            super().__init__(*args, **kwargs)

        def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
            self.finished.append(log.finished_entry(request))
            return super()._free_request(request, *args, **kwargs)

        def _preempt_request(
            self, request: Request, *args: Any, **kwargs: Any
        ) -> None:
            self.preempted.append(request.request_id)
            super()._preempt_request(request, *args, **kwargs)

        def finish_requests(
            self, request_ids: Any, finished_status: RequestStatus
        ) -> list[Request]:
            # vLLM walks a set here, whose order differs between processes.
            if isinstance(request_ids, str):
                return super().finish_requests(request_ids, finished_status)
            finished = []
            for request_id in sorted(request_ids):
                finished += super().finish_requests(request_id, finished_status)
            return finished

        def take_finished(self) -> list[dict[str, Any]]:
            finished, self.finished = self.finished, []
            return finished

        def take_preempted(self) -> list[str]:
            preempted, self.preempted = self.preempted, []
            return preempted

    return RecordingScheduler


class EventRecorder:
    """Takes the place of the event publisher."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []

    def publish(self, batch: Any) -> None:
        self._events.extend(log.event_entry(event) for event in batch.events)

    def take(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events


@dataclass
class Batch:
    """A `schedule()` call whose output is not processed yet."""

    index: int
    scheduled: SchedulerOutput
    sampled: ModelRunnerOutput


class Engine:
    """Runs a case through vLLM's scheduler and writes its log."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._set_environment()
        config = vllm_config(case)
        kv_cache, block_size, hash_block_size = kv_cache_config(case, config)
        scheduler_class = config.scheduler_config.get_scheduler_cls()
        self.scheduler = recording(scheduler_class)(
            vllm_config=config,
            kv_cache_config=kv_cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=block_size,
            hash_block_size=hash_block_size,
            log_stats=True,
        )
        self.scheduler.max_num_encoder_input_tokens = NO_ENCODER_LIMIT
        self.scheduler.encoder_cache_manager = EncoderCacheManager(NO_ENCODER_LIMIT)
        self.events = EventRecorder()
        self.scheduler.kv_event_publisher = self.events
        self.connector = self.scheduler.get_kv_connector()
        self.block_hasher = self._make_block_hasher(config, hash_block_size)
        self.num_speculative_tokens = config.num_speculative_tokens
        self.model = Model(config.num_speculative_tokens, case.is_async)
        self.queue: deque[Batch] = deque()
        self.queue_size = config.max_concurrent_batches
        self.window = CachingMetrics()
        self.pool = log.PoolState(self.scheduler.kv_cache_manager.block_pool)
        self.log = log.Log(case.full_every)
        self.step = 0
        self.num_schedules = 0
        self.num_idle = 0
        self.scheduled_tokens = 0
        self.num_preemptions = 0
        self.totals = [0] * 6
        none_hash = kv_cache_utils.NONE_HASH.hex() if self.block_hasher else None
        self.log.write(
            {
                "kind": "start",
                "format": FORMAT_VERSION,
                "name": case.name,
                "scheduler_block_size": block_size,
                "hash_block_size": hash_block_size,
                "num_lookahead_tokens": config.num_lookahead_tokens,
                "num_hash_lookahead_tokens": config.num_hash_lookahead_tokens,
                "max_concurrent_batches": config.max_concurrent_batches,
                "none_hash": none_hash,
                "scheduler": scheduler_class.__name__,
            }
        )

    def _set_environment(self) -> None:
        """vLLM reads these when it hashes and when it makes events."""
        seed = self.case.engine["python_hash_seed"]
        if seed is None:
            os.environ.pop("PYTHONHASHSEED", None)
        else:
            os.environ["PYTHONHASHSEED"] = seed
        use_int = self.case.engine["use_int_block_hashes"]
        os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = str(int(use_int))

    def _make_block_hasher(self, config: Any, hash_block_size: int) -> Any:
        if not config.cache_config.enable_prefix_caching and self.connector is None:
            return None
        hash_fn = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        kv_cache_utils.init_none_hash(hash_fn)
        return kv_cache_utils.get_request_block_hasher(
            hash_block_size, hash_fn, config.num_hash_lookahead_tokens
        )

    def run(self) -> str:
        """Run to the end and return the text of the log."""
        arrivals = deque(enumerate(self.case.requests))
        run_step = self._step_async if self.case.is_async else self._step_sync
        while True:
            while arrivals and arrivals[0][1]["arrival_step"] <= self.step:
                index, spec = arrivals.popleft()
                self.model.add_request(spec)
                request = make_request(spec, index, self.block_hasher)
                self.scheduler.add_request(request)
            self._run_actions("before_step")
            did_something = run_step()
            if not did_something and not arrivals and self.step >= self.case.last_step:
                break
            self.step += 1
        self.log.write(
            {
                "kind": "end",
                "steps": self.step,
                "schedules": self.num_schedules,
                "unfinished": self.scheduler.get_num_unfinished_requests(),
                "scheduled_tokens": self.scheduled_tokens,
                "preemptions": self.num_preemptions,
                "totals": self.totals,
            }
        )
        return self.log.text()

    def _step_sync(self) -> bool:
        if not self.scheduler.has_requests():
            return False
        batch = self._schedule()
        self._update(batch)
        if self.num_speculative_tokens and batch.scheduled.num_scheduled_tokens:
            drafts = self.model.draft(batch.scheduled, self.scheduler.requests)
            self.scheduler.update_draft_token_ids(drafts)
        return True

    def _step_async(self) -> bool:
        if self.scheduler.has_requests():
            batch = self._schedule()
            self.queue.append(batch)
            has_tokens = batch.scheduled.total_num_scheduled_tokens > 0
            if len(self.queue) < self.queue_size and (
                has_tokens or self.scheduler.has_requests()
            ):
                return True
        elif not self.queue:
            return False
        self._update(self.queue.popleft())
        return True

    def _schedule(self) -> Batch:
        index = self.num_schedules
        self.num_schedules += 1
        if self.connector is not None:
            self.connector.schedule_index = index
        output = self.scheduler.schedule()
        entries = log.scheduled_entries(
            output, self.scheduler.requests, self.num_speculative_tokens > 0
        )
        preempted = self.scheduler.take_preempted()
        self.num_preemptions += len(preempted)
        self.scheduled_tokens += output.total_num_scheduled_tokens
        line = {
            "step": self.step,
            "kind": "schedule",
            "schedule": index,
            "total_tokens": output.total_num_scheduled_tokens,
            "scheduled": entries,
            "preempted": preempted,
            "finished_ids": sorted(output.finished_req_ids),
        }
        if output.kv_cache_block_copies:
            line["block_copies"] = [list(c) for c in output.kv_cache_block_copies]
        if hasattr(self.connector, "take_reads"):
            line["reads"] = self.connector.take_reads()
        self.log.write(line | self._state())
        self._check_progress(output)
        sampled = self.model.execute(output, entries, self.scheduler.requests)
        return Batch(index, output, sampled)

    def _check_progress(self, output: SchedulerOutput) -> None:
        self.num_idle = 0 if output.total_num_scheduled_tokens else self.num_idle + 1
        if self.num_idle > MAX_IDLE_STEPS:
            raise StuckError(
                f"{self.case.name}: nothing was scheduled in {MAX_IDLE_STEPS} steps; "
                "make the pool larger or the requests smaller"
            )

    def _update(self, batch: Batch) -> None:
        if self.connector is not None:
            self.connector.processed_index = batch.index
        self._run_actions("before_update")
        kv = None
        if self.connector is not None:
            kv = self.connector.take_output()
            batch.sampled.kv_connector_output = kv
        outputs = self.scheduler.update_from_output(batch.scheduled, batch.sampled)[0]
        stats = outputs.scheduler_stats
        prefix_stats = log.stats_entry(stats.prefix_cache_stats)
        self.totals = [a + b for a, b in zip(self.totals, prefix_stats[1:])]
        self.window.observe(stats.prefix_cache_stats)
        line = {
            "step": self.step,
            "kind": "update",
            "schedule": batch.index,
            "outputs": [log.output_entry(output) for output in outputs.outputs],
            "finished": self.scheduler.take_finished(),
            "events": self.events.take(),
            "stats": prefix_stats,
            "window": [
                self.window.aggregated_requests,
                self.window.aggregated_query_total,
                self.window.aggregated_query_hit,
            ],
            "counts": [
                stats.num_running_reqs,
                stats.num_waiting_reqs,
                stats.num_skipped_waiting_reqs,
            ],
        }
        if stats.connector_prefix_cache_stats is not None:
            line["connector_stats"] = log.stats_entry(
                stats.connector_prefix_cache_stats
            )
        if self.num_speculative_tokens:
            line["spec_stats"] = log.spec_stats_entry(stats.spec_decoding_stats)
        if kv is not None:
            line["kv"] = log.kv_entry(kv)
        self.log.write(line | self._state())

    def _run_actions(self, when: str) -> None:
        for action in self.case.actions:
            if action["step"] == self.step and when == action.get(
                "when", "before_step"
            ):
                self._run_action(action)

    def _run_action(self, action: dict[str, Any]) -> None:
        line = {"step": self.step, "kind": "action", "action": action["kind"]}
        if action["kind"] == "abort":
            self.scheduler.finish_requests(
                action["id"], RequestStatus.FINISHED_ABORTED
            )
            line["id"] = action["id"]
            line["finished"] = self.scheduler.take_finished()
        else:
            reset_running = action.get("reset_running_requests", False)
            ok = self.scheduler.reset_prefix_cache(reset_running)
            preempted = self.scheduler.take_preempted()
            self.num_preemptions += len(preempted)
            line["reset_running_requests"] = reset_running
            line["ok"] = ok
            line["preempted"] = preempted
        self.log.write(line | self._state())

    def _state(self) -> dict[str, Any]:
        return log.queues(self.scheduler) | self.pool.entry()
