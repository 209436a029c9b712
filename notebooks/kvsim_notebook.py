"""What the notebooks share: calling kvsim, reading its tables, and how charts look."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import altair as alt
import polars as pl

ROOT = Path(__file__).resolve().parent.parent
KVSIM = Path(os.environ.get("KVSIM", ROOT / "target/release/kvsim"))

# A folder for everything that a notebook makes, gone when it ends.
_FOLDER = tempfile.TemporaryDirectory(prefix="kvsim-notebook-")
OUT = Path(_FOLDER.name)

# As pictures in the notebook, so that they are seen without JavaScript.
alt.renderers.enable("svg")
alt.theme.enable("default")
WIDTH, HEIGHT = 560, 300


def kvsim(*arguments: object) -> dict:
    """Runs a command at the root of the repository and returns the summary of its last event."""
    if not KVSIM.exists():
        raise SystemExit(f"there is no {KVSIM}; run `cargo build --release`, or set KVSIM to a kvsim")
    command = [str(KVSIM), *map(str, arguments), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = json.loads(done.stdout.splitlines()[-1])
    if last["event"] == "error":
        raise RuntimeError(f"{last['file']}: {last['message']}; {last['hint']}")
    return last["summary"]


def table(folder: Path, name: str) -> pl.DataFrame:
    """A table of a report; where there is Parquet, it holds the same as CSV."""
    csv = pl.read_csv(folder / f"{name}.csv", infer_schema_length=None)
    parquet = folder / f"{name}.parquet"
    if not parquet.exists():
        return csv
    frame = pl.read_parquet(parquet)
    same = [frame[column].cast(csv[column].dtype).equals(csv[column]) for column in csv.columns]
    assert frame.columns == csv.columns and all(same), f"{parquet} differs from CSV"
    return frame
