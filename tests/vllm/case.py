"""The case: an engine, the requests that arrive and what the model samples.

The keys are those of the conformance format; this module only reads them and
fills in the defaults that more than one other module needs.
"""

import gzip
import json
from pathlib import Path
from typing import Any

CASE_SUFFIXES = (".case.json", ".case.json.gz")
LOG_SUFFIXES = (".expected.jsonl", ".expected.jsonl.gz")


def read_text(path: Path) -> str:
    """Read a plain or gzipped text file."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def write_text(path: Path, text: str) -> None:
    """Write a plain or gzipped text file; the same text gives the same bytes."""
    data = text.encode()
    # mtime=0: a gzip header holds a time stamp otherwise.
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def case_stem(path: Path) -> str | None:
    """The name of a case file without its suffix, None for another file."""
    for suffix in CASE_SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return None


def find_cases(folder: Path) -> list[tuple[Path, Path | None]]:
    """All cases of a folder with the log beside each (None if there is none)."""
    found = []
    for path in sorted(folder.iterdir()):
        stem = case_stem(path)
        if stem is None:
            continue
        logs = [folder / (stem + suffix) for suffix in LOG_SUFFIXES]
        found.append((path, next((log for log in logs if log.exists()), None)))
    return found


def expand(segments: list[list[int]]) -> list[int]:
    """Token ids of `[[start, length], ...]`."""
    tokens: list[int] = []
    for start, length in segments:
        tokens.extend(range(start, start + length))
    return tokens


def compress(tokens: list[int]) -> list[list[int]]:
    """Segments of token ids: maximal runs of ids that grow by 1."""
    segments: list[list[int]] = []
    for token in tokens:
        if segments and token == segments[-1][0] + segments[-1][1]:
            segments[-1][1] += 1
        else:
            segments.append([token, 1])
    return segments


class Case:
    """A case as read from its file."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.name: str = data["name"]
        self.engine: dict[str, Any] = data["engine"]
        self.requests: list[dict[str, Any]] = data["requests"]
        self.actions: list[dict[str, Any]] = data["actions"]
        self.full_every: int = data.get("log", {}).get("full_every", 1)

    @classmethod
    def read(cls, path: Path) -> "Case":
        return cls(json.loads(read_text(path)))

    @property
    def is_async(self) -> bool:
        return self.engine["mode"] == "async"

    @property
    def last_step(self) -> int:
        """The last step at which the case itself does something."""
        steps = [r["arrival_step"] for r in self.requests]
        steps += [a["step"] for a in self.actions]
        return max(steps, default=0)
