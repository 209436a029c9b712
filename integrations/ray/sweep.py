#!/usr/bin/env python3
"""Runs a sweep of kvsim on a Ray cluster, or on workers that Ray starts here.

The sweep is split with `kvsim sweep --shard i/n`, a shard is a Ray task, and `kvsim sweep merge` joins the
parts: the results are the bytes that one machine would have written. Only the driver's machine needs kvsim
and the files of the sweep: both travel with the tasks.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import ray


class ShardFailed(Exception):
    """kvsim refused a shard: trying again would not help."""


def run_shard(kvsim: bytes, files: bytes, arguments: list[str], shard: str, threads: int) -> bytes:
    """Runs one shard in a folder of its own and returns its journal."""
    with tempfile.TemporaryDirectory(prefix="kvsim-shard-") as folder:
        root = Path(folder)
        binary = root / "kvsim"
        binary.write_bytes(kvsim)
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(root / "files", filter="data")
        part = root / "part"
        command = [str(binary), "sweep", *arguments, "--quiet", "--shard", shard, "--out", str(part)]
        command += ["--threads", str(threads)]
        done = subprocess.run(command, cwd=root / "files", stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode < 0:
            # Killed: by the system, or with its machine. Ray tries again.
            raise RuntimeError(f"shard {shard} was ended by signal {-done.returncode}")
        if done.returncode > 0:
            raise ShardFailed(f"shard {shard}: {done.stderr.strip()}")
        return (part / "journal.jsonl").read_bytes()


def pack(root: Path, paths: list[Path]) -> bytes:
    """The files and folders, by their paths below `root`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in paths:
            archive.add(path, arcname=path.relative_to(root))
    return buffer.getvalue()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="the sweep, a YAML file")
    parser.add_argument("--shards", type=int, default=8, help="into how many tasks it is split [8]")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the whole sweep")
    parser.add_argument("--root", type=Path, default=Path(), metavar="DIR",
                        help="the folder below which the sweep and all it names lie [the current one]")
    parser.add_argument("--files", type=Path, nargs="*", default=[], metavar="PATH",
                        help="what the scenario names: models, profiles, traces; below --root")
    parser.add_argument("--kvsim", default="kvsim", help="the program [kvsim, from PATH]")
    parser.add_argument("--threads", type=int, default=1, help="simulations at a time in a task, and its CPUs [1]")
    parser.add_argument("--workers", type=int, help="CPUs of the cluster that is started here [all]")
    parser.add_argument("--address", default=os.environ.get("RAY_ADDRESS"),
                        help="of a cluster, or `auto` [the variable RAY_ADDRESS, else one is started here]")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="as in kvsim sweep")
    parser.add_argument("--trace", type=Path, help="as in kvsim sweep; below --root")
    parser.add_argument("--retries", type=int, default=3, help="how often a task is tried again [3]")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    kvsim = shutil.which(arguments.kvsim)
    if kvsim is None:
        return refuse(f"there is no {arguments.kvsim}; build it with `cargo build --release` and give "
                      "--kvsim target/release/kvsim")
    root = arguments.root.resolve()
    # The scenario stands in the sweep; the folders of both are small.
    named = [arguments.sweep, *scenario_of(arguments.sweep), *arguments.files]
    named += [arguments.trace] if arguments.trace else []
    paths = []
    for path in named:
        path = path.resolve()
        if not path.exists():
            return refuse(f"there is no {path}")
        if not path.is_relative_to(root):
            return refuse(f"{path} is not below {root}; give --root with a folder that holds all")
        paths.append(path)
    options = [str(arguments.sweep.resolve().relative_to(root))]
    for text in arguments.set:
        options += ["--set", text]
    if arguments.trace:
        options += ["--trace", str(arguments.trace.resolve().relative_to(root))]

    if arguments.address:
        ray.init(address=arguments.address, log_to_driver=False)
    else:
        ray.init(num_cpus=arguments.workers, include_dashboard=False, log_to_driver=False)
    # Once into the object store, from where each machine takes them once.
    binary, files = ray.put(Path(kvsim).read_bytes()), ray.put(pack(root, paths))
    # Tried again: a machine that is lost, a worker that dies, kvsim that is killed. Not: kvsim that refuses.
    task = ray.remote(run_shard).options(
        num_cpus=arguments.threads, max_retries=arguments.retries, retry_exceptions=[RuntimeError, OSError]
    )
    shards = [f"{index}/{arguments.shards}" for index in range(1, arguments.shards + 1)]
    tasks = {task.remote(binary, files, options, shard, arguments.threads): shard for shard in shards}
    with tempfile.TemporaryDirectory(prefix="kvsim-parts-") as folder:
        parts = []
        waiting = list(tasks)
        while waiting:
            (ready,), waiting = ray.wait(waiting, num_returns=1)
            try:
                journal = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                return refuse(str(error.cause))
            except ray.exceptions.RayError as error:
                return refuse(f"shard {tasks[ready]} was lost {arguments.retries + 1} times: {error}")
            part = Path(folder) / tasks[ready].replace("/", "-of-")
            part.mkdir()
            (part / "journal.jsonl").write_bytes(journal)
            parts.append(str(part))
            print(f"shard {tasks[ready]} is there, {len(waiting)} of {len(shards)} left", file=sys.stderr)
        command = [kvsim, "sweep", "merge", "--restart", "--out", str(arguments.out), *parts]
        return subprocess.run(command, check=False).returncode


def scenario_of(sweep: Path) -> list[Path]:
    """The file that the sweep's line `scenario: ...` names, relative to the sweep."""
    if not sweep.exists():
        return []
    for line in sweep.read_text(encoding="utf-8").splitlines():
        if line.startswith("scenario:"):
            name = line.removeprefix("scenario:").split(" #")[0].strip().strip("\"'")
            return [sweep.parent / name]
    return []


def refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
