"""Time vLLM's own block hashing on this machine's CPU.

    python measure_hashing.py [-o TABLE.csv] [--repeats 30]

Times the request block hasher of vLLM over whole prompts, as the engine core's
input thread runs it when a request arrives, and over one more block at a time, as
the main thread runs it while outputs grow. One row for each hash algorithm, block
size and kind of extra keys: the median over repeats, in nanoseconds for one block.
`kvsim calibrate hashing TABLE.csv` fits the law to it.
"""

import argparse
import csv
import logging
import os
import platform
import random
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("PYTHONHASHSEED", "0")
logging.disable(logging.ERROR)

from arrivals import make_request
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.version import __version__ as VLLM_VERSION

ALGORITHMS = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
BLOCK_SIZES = [16, 32, 64, 128, 256]
# Enough that one measurement of the fastest case takes about a millisecond.
PROMPT_TOKENS = 8192
# Token ids are as long in pickle and CBOR as those of a vocabulary of today.
VOCABULARY = 128_256
COLUMNS = ["algorithm", "block_size", "extra_keys", "of", "block_ns", "measured_on"]
EXTRA_KEYS = {
    "none": {},
    "lora": {"lora": {"name": "adapter", "id": 1, "path": "/adapter"}},
    # An image in every block.
    "image": {"mm": [{"identifier": "a" * 64, "offset": 0, "length": PROMPT_TOKENS}]},
}


def prompt(rng):
    """Distinct tokens in vLLM's case format, one run for each."""
    return [[rng.randrange(VOCABULARY), 1] for _ in range(PROMPT_TOKENS)]


def whole_prompt_ns(request, hasher, num_blocks):
    """One pass over the prompt, per block."""
    request.block_hashes = []
    start = time.perf_counter_ns()
    hashes = hasher(request)
    elapsed = time.perf_counter_ns() - start
    assert len(hashes) == num_blocks
    return elapsed / num_blocks


def appended_ns(request, hasher, num_blocks):
    """A call for each of the last blocks, as when outputs fill them, per block."""
    tokens = request._all_token_ids
    request.block_hashes = []
    hashes = hasher(request)
    first = max(num_blocks - 32, 0)
    total = 0
    for done in range(first, num_blocks):
        request.block_hashes = hashes[:done]
        request._all_token_ids = tokens[: (done + 1) * (len(tokens) // num_blocks)]
        start = time.perf_counter_ns()
        new_hashes = hasher(request)
        total += time.perf_counter_ns() - start
        assert new_hashes == [hashes[done]]
    request._all_token_ids = tokens
    return total / (num_blocks - first)


def cpu_name():
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line for line in lines if line.startswith("model name")]
            return names[0].split(":")[1].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("-o", "--output", help="the table; standard output if left out")
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()

    rng = random.Random(1)
    rows = []
    for keys, fields in EXTRA_KEYS.items():
        for algorithm in ALGORITHMS:
            hash_fn = get_hash_fn_by_name(algorithm)
            init_none_hash(hash_fn)
            for block_size in BLOCK_SIZES:
                hasher = get_request_block_hasher(block_size, hash_fn)
                spec = {"id": "a", "prompt": prompt(rng), "output": [[0, 1]], **fields}
                request = make_request(spec, 0, None)
                num_blocks = PROMPT_TOKENS // block_size
                for kind, measure in [("prompt", whole_prompt_ns), ("output", appended_ns)]:
                    measure(request, hasher, num_blocks)
                    times = [measure(request, hasher, num_blocks) for _ in range(args.repeats)]
                    median = round(statistics.median(times), 1)
                    rows.append([algorithm, block_size, keys, kind, median])
    python = platform.python_version()
    about = f"{cpu_name()}; Python {python}; vLLM {VLLM_VERSION}"
    with open(args.output, "w", newline="") if args.output else sys.stdout as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*row, about] for row in rows)


main()
