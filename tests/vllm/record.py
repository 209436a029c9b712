"""Record the decision log of a case from vLLM, or check logs against it.

    python record.py CASE.case.json [-o LOG]
    python record.py --check DIR
"""

import argparse
import logging
import os
import sys
import time
from pathlib import Path

# Before vLLM is imported: no network, no statistics, no warnings about the
# missing device.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
logging.disable(logging.ERROR)

from case import Case, find_cases, read_text, write_text
from engine import Engine


def first_difference(recorded: str, expected: str) -> str:
    """Where two logs part, in words."""
    ours, theirs = recorded.splitlines(), expected.splitlines()
    for number, (our, their) in enumerate(zip(ours, theirs), 1):
        if our != their:
            return f"line {number}\n  recorded {our}\n  expected {their}"
    return f"{len(ours)} lines recorded, {len(theirs)} expected"


def check(folder: Path, only: str) -> int:
    """Record every case of a folder again; return how many differ."""
    passed = failed = 0
    for path, log_path in find_cases(folder):
        if only not in path.name:
            continue
        if log_path is None:
            print(f"FAIL {path.name}: no log beside it; record it with -o")
            failed += 1
            continue
        start = time.perf_counter()
        try:
            recorded = Engine(Case.read(path)).run()
        except Exception as error:
            # The point of a check is to show all that differs.
            print(f"FAIL {path.name}: {type(error).__name__}: {error}", flush=True)
            failed += 1
            continue
        expected = read_text(log_path)
        if recorded == expected:
            passed += 1
            print(f"ok   {path.name} {time.perf_counter() - start:.1f} s", flush=True)
        else:
            failed += 1
            where = first_difference(recorded, expected)
            print(f"FAIL {path.name}: {where}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", type=Path, nargs="?", help="case to record")
    parser.add_argument("-o", "--output", type=Path, help="log file; default stdout")
    parser.add_argument(
        "--check", type=Path, metavar="DIR", help="record all cases of DIR and compare"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="check cases with TEXT in their name"
    )
    args = parser.parse_args()
    if (args.case is None) == (args.check is None):
        parser.error("give either a case or --check DIR")
    if args.check is not None:
        return 1 if check(args.check, args.only) else 0
    text = Engine(Case.read(args.case)).run()
    if args.output is None:
        sys.stdout.write(text)
    else:
        write_text(args.output, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
