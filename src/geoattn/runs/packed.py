"""Many trials in one file: a line of JSON each, in the order of their keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.read_limit import Budget, memory_of
from geoattn._core.text_files import parse_json, read_json

__all__ = ["PackedTrials", "pack_folder"]


class PackedTrials:
    """The trials of ``DIR/trials.jsonl`` by key, read when the file is new or has changed.

    The same trials give the same bytes. A line that cannot be read is None: its trial counts as damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._trials: dict[str, dict[str, Any] | None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._read()

    def get(self, key: str) -> dict[str, Any] | None:
        """All that is stored of a trial; None where its line is damaged or there is none."""
        return self._read().get(key)

    @property
    def stamp(self) -> tuple[int, int] | None:
        """Time and size of the file that was read last; None: there was none."""
        return self._seen

    def _read(self) -> dict[str, dict[str, Any] | None]:
        try:
            now = self.path.stat()
        except FileNotFoundError:
            self._seen, self._trials = None, {}
            return self._trials
        if self._seen != (now.st_mtime_ns, now.st_size):
            try:
                budget, trials = Budget(self.path, "its trials"), {}
                for line in _lines(self.path):
                    key, content = _read_line(line)
                    budget.spend(memory_of(content))
                    trials[key] = content
                self._trials = trials
            except OSError as error:
                raise GeoattnError(f"cannot read {self.path}: {error.strerror or error}.") from None
            self._seen = now.st_mtime_ns, now.st_size
        return self._trials


def pack_folder(loose: Path, packed: Path) -> int:
    """Fold the files of the folder ``loose`` into the file ``packed`` and remove them; how many they were.

    A loose file replaces a packed trial of the same key. Files that are no whole trial stay where they are.
    """
    lines = {}
    if packed.exists():
        for line in _lines(packed):
            key, content = _read_line(line)
            if content is not None:
                lines[key] = line
    folded: list[Path] = []
    for path in sorted(loose.glob("*.json")):
        try:
            content = read_json(path)
        except ValueError:
            continue
        if isinstance(content, dict) and "checksum" in content and "result" in content:
            lines[path.stem] = json.dumps(
                {"key": path.stem, **content}, sort_keys=True, allow_nan=False, separators=(",", ":")
            ).encode()  # fmt: skip
            folded.append(path)
    if folded:
        content = b"".join(lines[key] + b"\n" for key in sorted(lines))
        write_atomically(packed, lambda file: file.write(content))
        for path in folded:
            path.unlink()
        if not any(loose.iterdir()):
            loose.rmdir()
    return len(folded)


def _lines(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        for line in file:
            yield line.rstrip(b"\r\n")


def _read_line(line: bytes) -> tuple[str, dict[str, Any] | None]:
    """Key and content of a line."""
    try:
        content = parse_json(line)
        return str(content.pop("key")), content
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"damaged {line[:40]!r}", None
