"""The kinds of random cases: what each draws on top of a common base."""

import random
from collections.abc import Callable
from typing import Any

# Token ids of shared documents, fresh text and outputs lie apart from each
# other, so that a log can be read.
DOCUMENT_STRIDE = 10_000
FRESH_START = 1_000_000
OUTPUT_START = 5_000_000
# Ids past 32 bits are written differently into a hash.
WIDE_OFFSET = 1 << 33


class Draft:
    """A case in the making: the engine, and how to draw its requests."""

    def __init__(self, rng: random.Random, mode: str, num_requests: int) -> None:
        self.rng = rng
        self.num_requests = num_requests
        self.actions: list[dict[str, Any]] = []
        # Each adds keys to one request.
        self.decorators: list[Callable[[dict[str, Any]], None]] = []
        self.max_gap = rng.choice((1, 2, 3, 5))
        self._fresh = FRESH_START
        self._turns: list[list[list[int]]] = []
        block_size = rng.choice((2, 4, 4, 8, 16))
        self.max_len = block_size * rng.randint(6, 20)
        self.engine: dict[str, Any] = {
            "mode": mode,
            "block_size": block_size,
            "num_gpu_blocks": 0,
            "max_num_seqs": rng.choice((2, 4, 6, 8, 16)),
            "max_num_batched_tokens": self.max_len // rng.choice((1, 2, 3)) + 16,
            "max_model_len": self.max_len,
            "enable_chunked_prefill": True,
            "long_prefill_token_threshold": 0,
            "enable_prefix_caching": True,
            "prefix_caching_hash_algo": "sha256",
            "python_hash_seed": None,
            "policy": "fcfs",
            "enable_kv_cache_events": True,
            "use_int_block_hashes": rng.random() < 0.7,
            "kv_cache_groups": [{"kind": "full", "block_size": block_size}],
        }
        if rng.random() < 0.4:
            self.engine["scheduler_reserve_full_isl"] = rng.random() < 0.4
        if rng.random() < 0.25:
            self.engine["watermark"] = rng.choice((0.05, 0.1, 0.2))
        self.tightness = rng.choice((1.1, 1.3, 1.8, 2.5, 4.0))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def set_groups(self, groups: list[dict[str, Any]]) -> None:
        """Several groups; the length fits their blocks."""
        sizes = [group["block_size"] for group in groups]
        self.engine["block_size"] = min(sizes)
        self.engine["kv_cache_groups"] = groups
        self.max_len = max(sizes) * self.rng.randint(5, 12)
        self.engine["max_model_len"] = self.max_len
        self.engine["max_num_batched_tokens"] = (
            max(self.max_len // self.rng.choice((1, 2, 3)), max(sizes)) + 16
        )

    def abort_some(self, share: float) -> None:
        """Abort a share of the requests at any time after they arrive."""

        def decorate(request: dict[str, Any]) -> None:
            if not self.chance(share):
                return
            step = request["arrival_step"] + self.rng.randint(0, 25)
            action = {"step": step, "kind": "abort", "id": request["id"]}
            if self.chance(0.5):
                action["when"] = "before_update"
            self.actions.append(action)

        self.decorators.append(decorate)

    def reset_some(self, count: int, running: bool) -> None:
        last = self.num_requests * (self.max_gap + 1) // 2 + 20
        for _ in range(count):
            action = {
                "step": self.rng.randint(3, last),
                "kind": "reset_prefix_cache",
                "reset_running_requests": running and self.chance(0.7),
            }
            self.actions.append(action)

    def make_requests(self) -> list[dict[str, Any]]:
        self._size_pool()
        step = 0
        requests = []
        for index in range(self.num_requests):
            # Bursts: most requests come with or right after another one.
            step += 0 if self.chance(0.4) else self.rng.randint(1, self.max_gap)
            request = {"id": f"r{index}", "arrival_step": step, **self._text()}
            for decorate in self.decorators:
                decorate(request)
            requests.append(request)
        return requests

    def _size_pool(self) -> None:
        """A pool that holds the longest request and not many of them."""
        dcp = self.engine.get("dcp_world_size", 1)
        length = self.max_len + 2 * self.engine.get("num_speculative_tokens", 0) + 1
        one = sum(
            -(-length // (group["block_size"] * dcp)) + 1
            for group in self.engine["kv_cache_groups"]
        )
        usable = int(one * self.tightness)
        watermark = self.engine.get("watermark", 0.0)
        self.engine["num_gpu_blocks"] = int(usable / (1 - watermark)) + 3

    def _text(self) -> dict[str, Any]:
        """Prompt and output; the prompt begins like another one more often
        than not, and like a whole earlier turn quite often."""
        rng = self.rng
        longest = self.max_len - 2
        kind = rng.random()
        if self._turns and kind < 0.3:
            prompt = [list(s) for s in rng.choice(self._turns[-12:])]
        elif kind < 0.8:
            document = rng.randrange(4) * DOCUMENT_STRIDE
            prompt = [[document, rng.randint(1, max(1, longest * 3 // 4))]]
        else:
            prompt = []
        prompt = _cut(prompt, longest)
        room = longest - _length(prompt)
        if room > 0 and (not prompt or self.chance(0.7)):
            prompt.append([self._fresh, rng.randint(1, min(room, 24))])
            self._fresh += 100
        if self.chance(0.05):
            prompt[-1][0] += WIDE_OFFSET
        # Past the end of the model's length now and then.
        wanted = rng.randint(1, rng.choice((4, 12, 30)))
        room = self.max_len - _length(prompt)
        num_output = wanted if self.chance(0.1) else max(1, min(wanted, room))
        output = [[OUTPUT_START + rng.randrange(3) * 1000, num_output]]
        text: dict[str, Any] = {"prompt": prompt, "output": output}
        if self.chance(0.1):
            text["max_tokens"] = rng.randint(1, num_output)
        if self.chance(0.08):
            text["stop_token_ids"] = [output[0][0] + rng.randrange(num_output)]
        self._turns.append(prompt + output)
        return text


def _length(segments: list[list[int]]) -> int:
    return sum(length for _, length in segments)


def _cut(segments: list[list[int]], limit: int) -> list[list[int]]:
    """The first `limit` tokens."""
    cut = []
    for start, length in segments:
        length = min(length, limit)
        limit -= length
        if length > 0:
            cut.append([start, length])
    return cut


def core(draft: Draft) -> None:
    """Chunked prefill, thresholds and budgets."""
    engine = draft.engine
    if draft.chance(0.4):
        engine["long_prefill_token_threshold"] = draft.rng.randint(3, 20)
        engine["long_prefill_token_threshold_adaptive"] = draft.chance(0.5)
    if draft.chance(0.3):
        most = engine["max_num_batched_tokens"]
        engine["max_num_scheduled_tokens"] = draft.rng.randint(most // 2, most)
    if draft.chance(0.15):
        engine["enable_chunked_prefill"] = False
        engine["max_num_batched_tokens"] = draft.max_len + draft.rng.randint(0, 16)
        engine.pop("max_num_scheduled_tokens", None)


def preempt(draft: Draft) -> None:
    """A pool hardly larger than one request, admission without reserve."""
    draft.tightness = draft.rng.choice((1.02, 1.1, 1.3))
    draft.engine["scheduler_reserve_full_isl"] = draft.chance(0.3)
    draft.engine["max_num_seqs"] = 8
    draft.engine.pop("watermark", None)
    if draft.chance(0.3):
        draft.reset_some(2, running=True)


def hashes(draft: Draft) -> None:
    """Hash algorithms and seeds."""
    algo = draft.rng.choice(("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"))
    draft.engine["prefix_caching_hash_algo"] = algo
    # Without a seed xxhash would start from random bytes.
    seeds: tuple[str | None, ...] = ("0", "7", "4294967295")
    draft.engine["python_hash_seed"] = draft.rng.choice(
        seeds if algo.startswith("xxhash") else (*seeds, None)
    )
    core(draft)


def extra(draft: Draft) -> None:
    """LoRA, salt, multimodal items and prompt embeddings in the hashes."""
    rng = draft.rng
    if draft.chance(0.5):
        draft.engine["max_loras"] = rng.randint(1, 2)
    if draft.chance(0.5):
        draft.engine["prefix_caching_hash_algo"] = "sha256_cbor"

    def decorate(request: dict[str, Any]) -> None:
        if draft.chance(0.3):
            number = rng.randint(1, 3)
            name = f"adapter-{number}"
            request["lora"] = {"name": name, "id": number, "path": f"/loras/{name}"}
        if draft.chance(0.2):
            request["cache_salt"] = rng.choice(("tenant-a", "tenant-b", ""))
        if draft.chance(0.08):
            request["prompt_embeds"] = {
                "num_tokens": _length(request["prompt"]),
                "dim": 2,
                "start": rng.randint(0, 2),
            }
            request["prompt"] = []
        elif draft.chance(0.35):
            request["mm"] = _items(rng, _length(request["prompt"]))
        if draft.chance(0.1):
            request["session_id"] = f"session-{rng.randrange(3)}"

    draft.decorators.append(decorate)


def _items(rng: random.Random, prompt_length: int) -> list[dict[str, Any]]:
    """Multimodal items. The identifier names the length, because an item
    always has one length."""
    items = []
    offset = rng.randint(0, max(0, prompt_length // 2))
    while len(items) < 3:
        length = rng.choice((1, 3, 6, 11))
        if offset + length > prompt_length:
            break
        identifier = f"{rng.choice(('a', 'image-b', 'ü'))}{length}"
        items.append({"identifier": identifier, "offset": offset, "length": length})
        offset += length + rng.randint(0, 6)
    return items


def reset(draft: Draft) -> None:
    draft.reset_some(8, running=True)
    draft.abort_some(0.05)


def events(draft: Draft) -> None:
    """Reports of reused blocks, and sessions."""
    rng = draft.rng

    def decorate(request: dict[str, Any]) -> None:
        if draft.chance(0.4):
            request["kv_cache_report_mode"] = "full"
        if draft.chance(0.4):
            request["session_id"] = f"session-{rng.randrange(4)}"

    draft.decorators.append(decorate)
    draft.reset_some(3, running=False)


def abort(draft: Draft) -> None:
    draft.abort_some(0.4)


def priority(draft: Draft) -> None:
    rng = draft.rng
    draft.engine["policy"] = "priority"
    draft.tightness = rng.choice((1.05, 1.2, 1.6))
    draft.engine["scheduler_reserve_full_isl"] = draft.chance(0.3)

    def decorate(request: dict[str, Any]) -> None:
        request["priority"] = rng.randint(-1, 3)
        if draft.chance(0.2):
            request["arrival_time"] = float(rng.randint(0, 20))

    draft.decorators.append(decorate)
    draft.abort_some(0.08)
    if draft.chance(0.3):
        draft.reset_some(2, running=True)


def skip(draft: Draft) -> None:
    """Requests that do not read the cache."""

    def decorate(request: dict[str, Any]) -> None:
        if draft.chance(0.35):
            request["skip_reading_prefix_cache"] = True

    draft.decorators.append(decorate)


def _window(draft: Draft, block_size: int) -> dict[str, Any]:
    return {
        "kind": "sliding_window",
        "block_size": block_size,
        "sliding_window": draft.rng.randint(2, 5 * block_size),
    }


def _stir(draft: Draft) -> None:
    """Resets and aborts in some of the cases."""
    if draft.chance(0.3):
        draft.abort_some(0.15)
    if draft.chance(0.3):
        draft.reset_some(3, running=True)


def window(draft: Draft) -> None:
    """Full attention and sliding windows, of one or of several block sizes."""
    size = draft.rng.choice((2, 4, 8))
    full = {"kind": "full", "block_size": size * draft.rng.choice((1, 1, 2, 4))}
    groups = [full] + [_window(draft, size) for _ in range(draft.rng.randint(1, 2))]
    if draft.chance(0.3):
        draft.rng.shuffle(groups)
    draft.set_groups(groups)
    _stir(draft)


def window_only(draft: Draft) -> None:
    size = draft.rng.choice((2, 4, 8))
    draft.set_groups([_window(draft, size) for _ in range(draft.rng.randint(1, 2))])
    _stir(draft)


def chunked_local(draft: Draft) -> None:
    size = draft.rng.choice((2, 4, 8))
    groups = [
        {"kind": "full", "block_size": size},
        {
            "kind": "chunked_local",
            "block_size": size,
            "chunk_size": size * draft.rng.randint(1, 5),
        },
    ]
    if draft.chance(0.4):
        groups.append(_window(draft, size))
    draft.set_groups(groups)
    _stir(draft)


def mamba(draft: Draft) -> None:
    size = draft.rng.choice((4, 8, 16))
    groups = [
        {"kind": "full", "block_size": size},
        {"kind": "mamba", "block_size": size, "cache_mode": "align"},
    ]
    draft.set_groups(groups)
    if draft.chance(0.6):
        draft.engine["hash_block_size"] = size // draft.rng.choice((2, 4))
    _stir(draft)


def spec(draft: Draft) -> None:
    """Drafts by EAGLE, with either kind of hashes, or by n-grams."""
    rng = draft.rng
    engine = draft.engine
    num_drafts = rng.randint(1, 4)
    engine["num_speculative_tokens"] = num_drafts
    engine["spec_method"] = rng.choice(("eagle", "eagle", "ngram"))
    if engine["spec_method"] == "eagle":
        engine["lookahead_block_hashes"] = draft.chance(0.5)

    def decorate(request: dict[str, Any]) -> None:
        accepts = [rng.randint(0, num_drafts) for _ in range(rng.randint(1, 6))]
        request["draft_accepts"] = accepts
        if engine["mode"] == "sync" and draft.chance(0.4):
            lens = [rng.randint(0, num_drafts) for _ in range(rng.randint(1, 5))]
            request["draft_lens"] = lens

    draft.decorators.append(decorate)
    _stir(draft)


def spec_window(draft: Draft) -> None:
    """Drafts with several groups."""
    window(draft)
    spec(draft)


def spec_priority(draft: Draft) -> None:
    priority(draft)
    spec(draft)


def conn(draft: Draft) -> None:
    """Loads from outside, at once or over steps, that may fail, and sends."""
    _connect(draft, may_fail_blocks=True)
    if draft.chance(0.3):
        draft.abort_some(0.15)
    if draft.chance(0.3):
        draft.reset_some(2, running=False)


def pull(draft: Draft) -> None:
    """Prompts for others, and prompts that others have computed."""
    _pull(draft)
    if draft.chance(0.6):
        draft.abort_some(0.2)


def pull_window(draft: Draft) -> None:
    """The same with several groups, of which a window is read in part."""
    size = draft.rng.choice((4, 8))
    draft.set_groups([{"kind": "full", "block_size": size}, _window(draft, size)])
    _pull(draft)
    if draft.chance(0.3):
        draft.abort_some(0.1)


def _pull(draft: Draft) -> None:
    rng = draft.rng
    policy = rng.choice(("recompute", "fail"))
    draft.engine["kv_connector"] = {
        "role": "kv_both",
        "kind": "pull",
        "load_failure_policy": policy,
    }
    draft.tightness = rng.choice((1.5, 2.0, 3.0))
    # A server of one role, or of both.
    share_of_prefills = rng.choice((0.0, 0.5, 1.0))

    def decorate(request: dict[str, Any]) -> None:
        if draft.chance(0.1):
            return
        if draft.chance(share_of_prefills):
            request["pull"] = {"part": "prefill", "steps": rng.randint(1, 8)}
            request["max_tokens"] = 1
            return
        request["pull"] = {"part": "decode", "steps": rng.randint(1, 5)}
        if draft.chance(0.1):
            request["pull"]["fail"] = True

    draft.decorators.append(decorate)


def conn_window(draft: Draft) -> None:
    """A connector with several groups, where only whole loads can fail."""
    size = draft.rng.choice((4, 8))
    draft.set_groups([{"kind": "full", "block_size": size}, _window(draft, size)])
    _connect(draft, may_fail_blocks=False)
    if draft.chance(0.3):
        draft.abort_some(0.1)


def conn_spec(draft: Draft) -> None:
    _connect(draft, may_fail_blocks=False)
    spec(draft)
    draft.actions.clear()


def conn_priority(draft: Draft) -> None:
    _connect(draft, may_fail_blocks=True)
    priority(draft)
    draft.actions.clear()


def _connect(draft: Draft, may_fail_blocks: bool) -> None:
    rng = draft.rng
    engine = draft.engine
    policy = rng.choice(("recompute", "fail"))
    engine["kv_connector"] = {"role": "kv_both", "load_failure_policy": policy}
    draft.tightness = rng.choice((1.5, 2.0, 3.0))
    block_size = max(group["block_size"] for group in engine["kv_cache_groups"])

    def decorate(request: dict[str, Any]) -> None:
        kv: dict[str, Any] = {}
        if draft.chance(0.6):
            num_blocks = _length(request["prompt"]) // block_size + 1
            kv["external_tokens"] = rng.randint(1, num_blocks) * block_size
            if draft.chance(0.5):
                kv["async"] = True
                kv["load_steps"] = rng.randint(1, 5)
                if draft.chance(0.1):
                    kv["fail_request"] = True
            if may_fail_blocks and draft.chance(0.15):
                failing = {rng.randrange(num_blocks) for _ in range(2)}
                kv["fail_blocks"] = sorted(failing)
        if draft.chance(0.2):
            kv["send_steps"] = rng.randint(1, 6)
        if draft.chance(0.15):
            kv["defer_lookups"] = rng.randint(1, 4)
        if kv:
            request["kv"] = kv

    draft.decorators.append(decorate)


def dcp(draft: Draft) -> None:
    draft.engine["dcp_world_size"] = draft.rng.choice((2, 4))
    _stir(draft)


def no_cache(draft: Draft) -> None:
    """Prefix caching off, with one group or two."""
    if draft.chance(0.4):
        window(draft)
    draft.engine["enable_prefix_caching"] = False
    if draft.chance(0.4):
        spec(draft)
    draft.abort_some(0.1)


def mix(draft: Draft) -> None:
    """As much at once as vLLM takes."""
    for kind in (core, extra, events, skip):
        if draft.chance(0.5):
            kind(draft)
    if draft.chance(0.4):
        priority(draft)
    if draft.chance(0.4):
        spec(draft)
    draft.abort_some(0.15)
    draft.reset_some(3, running=True)


KINDS: dict[str, Callable[[Draft], None]] = {
    "core": core,
    "preempt": preempt,
    "hashes": hashes,
    "extra": extra,
    "reset": reset,
    "events": events,
    "abort": abort,
    "priority": priority,
    "skip": skip,
    "window": window,
    "window_only": window_only,
    "chunked_local": chunked_local,
    "mamba": mamba,
    "spec": spec,
    "spec_window": spec_window,
    "spec_priority": spec_priority,
    "conn": conn,
    "conn_window": conn_window,
    "pull": pull,
    "pull_window": pull_window,
    "conn_spec": conn_spec,
    "conn_priority": conn_priority,
    "dcp": dcp,
    "no_cache": no_cache,
    "mix": mix,
}
