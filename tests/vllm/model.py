"""The model: samples what the case says and counts accepted drafts.

vLLM's scheduler sees only token ids and how many of its drafts were accepted,
so a table of outputs is as good as a model.
"""

from typing import Any

from case import expand
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request

# What is sampled past the end of `output`, where the scheduler drops it, and
# the id of every draft: the scheduler never looks at the ids of drafts.
PAD_TOKEN = 0


class Sampler:
    """What the model samples for one request."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._output = expand(spec["output"])
        self._accepts: list[int] = spec.get("draft_accepts", [0])
        self._draft_lens: list[int] | None = spec.get("draft_lens")
        self._num_verified = 0
        self._num_drafted = 0
        self.num_sampled = 0

    def accept(self, num_draft: int) -> int:
        """How many of the drafts of a verifying step are accepted."""
        accepts = self._accepts[self._num_verified % len(self._accepts)]
        self._num_verified += 1
        return min(accepts, num_draft)

    def sample(self, first: int, count: int) -> list[int]:
        """Output tokens from position `first` on."""
        end = first + count
        tokens = self._output[first:end]
        return tokens + [PAD_TOKEN] * (count - len(tokens))

    def num_drafts(self, limit: int, is_decoding: bool) -> int:
        """How many drafts the drafter proposes after a step."""
        if self._draft_lens is None or not is_decoding:
            return limit
        length = self._draft_lens[self._num_drafted % len(self._draft_lens)]
        self._num_drafted += 1
        return min(length, limit)


class Model:
    """Stands where the model runner stands."""

    def __init__(self, num_speculative_tokens: int, is_async: bool) -> None:
        self._num_speculative_tokens = num_speculative_tokens
        # With drafts in flight the scheduler's own count is optimistic, so
        # the position of a sample has to be counted here.
        self._counts_itself = is_async and num_speculative_tokens > 0
        self._samplers: dict[str, Sampler] = {}

    def add_request(self, spec: dict[str, Any]) -> None:
        self._samplers[spec["id"]] = Sampler(spec)

    def execute(
        self,
        output: SchedulerOutput,
        entries: list[dict[str, Any]],
        requests: dict[str, Request],
    ) -> ModelRunnerOutput:
        """Sample for the entries of a `schedule()` call, in their order."""
        req_ids = [entry["id"] for entry in entries]
        sampled = [
            self._sample(
                entry,
                len(output.scheduled_spec_decode_tokens.get(entry["id"], ())),
                requests[entry["id"]],
            )
            for entry in entries
        ]
        return ModelRunnerOutput(
            req_ids=req_ids,
            req_id_to_index={req_id: i for i, req_id in enumerate(req_ids)},
            sampled_token_ids=sampled,
        )

    def _sample(
        self, entry: dict[str, Any], num_draft: int, request: Request
    ) -> list[int]:
        sampler = self._samplers[entry["id"]]
        is_admitted = entry["kind"] != "running"
        if is_admitted:
            sampler.num_sampled = request.num_output_tokens
        if request.is_prefill_chunk:
            return []
        if self._counts_itself:
            first = sampler.num_sampled
        else:
            first = (
                entry["num_computed"]
                + entry["num_tokens"]
                - num_draft
                - request.num_prompt_tokens
            )
        # The drafts of a request that was just admitted are padding.
        accepted = 0 if is_admitted or not num_draft else sampler.accept(num_draft)
        sampler.num_sampled = first + 1 + accepted
        return sampler.sample(first, 1 + accepted)

    def draft(
        self, output: SchedulerOutput, requests: dict[str, Request]
    ) -> DraftTokenIds:
        """The drafts for the requests of a step that was just processed."""
        req_ids = list(output.num_scheduled_tokens)
        drafts = []
        for req_id in req_ids:
            request = requests.get(req_id)
            is_decoding = (
                request is not None
                and not request.is_finished()
                and not request.is_prefill_chunk
            )
            num_drafts = self._samplers[req_id].num_drafts(
                self._num_speculative_tokens, is_decoding
            )
            drafts.append([PAD_TOKEN] * num_drafts)
        return DraftTokenIds(req_ids, drafts)
