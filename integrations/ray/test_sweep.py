#!/usr/bin/env python3
"""Runs a sweep on two workers of Ray, one of which is killed, and compares it with one run.

    python integrations/ray/test_sweep.py target/release/kvsim
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

SCENARIO = """
name: small
model: Llama-3.1-8B
gpu: H100
engine: {max_model_len: 4096, num_gpu_blocks_override: 300}
workload:
  chat:
    sessions_per_s: 5
    duration_s: 60
    tenants: [{name: a, system_prompt_tokens: 200}]
    turns: {geometric: {mean: 3, max: 10}}
    message_tokens: {lognormal: {median: 60, sigma: 1.0, max: 1000}}
    answer_tokens: {lognormal: {median: 50, sigma: 0.7, max: 500}}
    think_time_s: {exponential: {mean: 2}}
    max_context_tokens: 4096
"""

SWEEP = """
name: small
scenario: scenario.yaml
grid:
  engine.block_size: [16, 32]
  engine.num_gpu_blocks_override: [260, 300, 400, 500]
replications: 2
pareto: {minimise: [latency.ttft.p99_ms], maximise: [prefix_cache.hit_rate]}
"""


def children_of(pid: int, name: str) -> list[int]:
    """Processes below `pid` whose program has this name."""
    found, parents = [], {pid}
    stats = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            program, rest = text[text.index("(") + 1:].rsplit(")", 1)
            stats.append((int(folder.name), int(rest.split()[1]), program))
    for _ in range(8):
        parents |= {own for own, parent, _ in stats if parent in parents}
    found += [own for own, _, program in stats if own in parents and program == name]
    return found


def kill_one(driver: int, killed: list[int]) -> None:
    """Ends the first simulation that runs on a worker, as if its machine were lost."""
    deadline = time.monotonic() + 90
    while not killed and time.monotonic() < deadline:
        for pid in children_of(driver, "kvsim")[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            except ProcessLookupError:
                pass
        time.sleep(0.002)


def main() -> int:
    kvsim = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="kvsim-ray-test-") as folder:
        root = Path(folder)
        (root / "scenario.yaml").write_text(SCENARIO)
        (root / "sweep.yaml").write_text(SWEEP)
        subprocess.run([kvsim, "sweep", "sweep.yaml", "--quiet", "--out", "one"], cwd=root, check=True)
        command = [sys.executable, str(HERE / "sweep.py"), "sweep.yaml", "--shards", "4", "--workers", "2"]
        command += ["--out", "ray", "--kvsim", str(kvsim)]
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        driver = subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE, text=True)
        killed: list[int] = []
        killer = threading.Thread(target=kill_one, args=(driver.pid, killed))
        killer.start()
        said = driver.communicate()[1]
        killer.join()
        assert driver.returncode == 0, said
        assert killed, "no simulation was there to be killed"
        names = sorted(path.name for path in (root / "one").iterdir() if path.name != "journal.jsonl")
        assert "results.csv" in names
        for name in names:
            assert (root / "one" / name).read_bytes() == (root / "ray" / name).read_bytes(), name
        print(f"equal on two workers, one of which was killed: {', '.join(names)}")

        # What kvsim refuses is not tried again.
        command = [*command, "--set", "engine.no_such_field=1"]
        refused = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        assert refused.returncode == 2, refused.stderr
        assert "no_such_field" in refused.stderr, refused.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
