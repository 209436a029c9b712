#!/usr/bin/env python3
"""Runs the notebooks from top to bottom, with kvsim from target/release or the variable KVSIM.

    python notebooks/run.py            # writes their outputs into them
    python notebooks/run.py --check    # writes nothing, and fails where a cell does
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if "KVSIM" in os.environ:
        # Notebooks run in their own folder.
        os.environ["KVSIM"] = str(Path(os.environ["KVSIM"]).resolve())
    for path in sorted(HERE.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        began = time.monotonic()
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(HERE)}}).execute()
        for cell in notebook.cells:
            # When it ran, and in which order, is different each time.
            cell.metadata.pop("execution", None)
        if not check:
            nbformat.write(notebook, path)
        print(f"{path.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
