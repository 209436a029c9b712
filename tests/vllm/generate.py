"""Make random cases, and record them unless vLLM itself refuses them.

    python generate.py OUT --seed 1 --count 4 --kind spec --kind conn

A kind and a seed always give the same case. Pools are tight, prompts share
prefixes and outputs repeat, because decisions only get hard when requests
compete for blocks and find each other's.
"""

import argparse
import json
import logging
import os
import random
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
logging.disable(logging.ERROR)

from case import Case, write_text
from engine import Engine
from kinds import KINDS, Draft

MODES = ("sync", "async")
# The last seed tried for a case is this many above the first.
MAX_ATTEMPTS = 20


def make_case(
    kind: str, seed: int, mode: str, num_requests: int, full_every: int
) -> dict[str, Any]:
    """The case of a kind and a seed."""
    rng = random.Random(f"{kind}/{seed}/{mode}")
    draft = Draft(rng, mode, num_requests)
    KINDS[kind](draft)
    case: dict[str, Any] = {
        "name": f"S_{kind}_{seed}_{mode}",
        "note": f"random: kind {kind}, seed {seed}",
        "engine": draft.engine,
        "requests": draft.make_requests(),
        "actions": sorted(draft.actions, key=lambda action: action["step"]),
    }
    if full_every > 1:
        case["log"] = {"full_every": full_every}
    return case


def case_text(case: dict[str, Any]) -> str:
    """JSON with a line for each request and action."""
    lines = []
    for key, value in case.items():
        if key in ("requests", "actions"):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f' "{key}": [\n{rows}\n ]' if rows else f' "{key}": []')
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for cases and logs")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--count", type=int, default=1, help="cases per kind and mode")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--mode", choices=MODES, help="default: both")
    parser.add_argument("--requests", type=int, default=60, help="requests of a case")
    parser.add_argument("--full-every", type=int, default=1, metavar="N")
    parser.add_argument("--gz", action="store_true", help="compress the files")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    suffix = ".gz" if args.gz else ""
    for kind in args.kind or KINDS:
        for mode in [args.mode] if args.mode else MODES:
            seed, made = args.seed, 0
            while made < args.count and seed < args.seed + args.count + MAX_ATTEMPTS:
                case = make_case(kind, seed, mode, args.requests, args.full_every)
                seed += 1
                try:
                    text = Engine(Case(case)).run()
                except Exception as error:
                    # A case that vLLM cannot run says nothing about decisions.
                    reason = f"{type(error).__name__}: {error}"
                    print(f"dropped {case['name']}: {reason[:200]}", flush=True)
                    continue
                stem = args.out / case["name"]
                write_text(Path(f"{stem}.case.json{suffix}"), case_text(case))
                write_text(Path(f"{stem}.expected.jsonl{suffix}"), text)
                print(f"made {case['name']}: {text.splitlines()[-1]}", flush=True)
                made += 1


if __name__ == "__main__":
    main()
