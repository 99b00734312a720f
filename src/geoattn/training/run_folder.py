"""What a training run left in its folder: the recipe, and the rows of its log."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._core.text_files import read_json
from geoattn.training.training_log import read_json_lines

__all__ = ["TrainingRun", "alone_in", "read_run"]


@contextmanager
def alone_in(folder: str | os.PathLike[str]) -> Iterator[None]:
    """No other process trains in the folder meanwhile: an error if one does. The lock ends with the process."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise GeoattnError(f"cannot write to {path}: {error.strerror or error}.") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise GeoattnError(f"another process trains in {path}; wait for it, or choose another folder.") from None
    except OSError:
        pass  # a file system without locks: nobody can tell
    try:
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(Displayed):
    """A run: ``name`` of its folder, ``recipe`` as plain values, and the ``rows`` of its log in order.

    Rows with ``epoch`` are written after an epoch, the others by the monitor.

    Examples
    --------
    >>> import tempfile
    >>> from geoattn.training import Recipe, read_run, train
    >>> out = tempfile.mkdtemp()
    >>> _ = train(Recipe("digits", epochs=1, limit=20, test_limit=10, changes={"depth": 1}), out)
    >>> run = read_run(out)
    >>> run.recipe["epochs"], len(run.rows)
    (1, 1)
    """

    name: str
    recipe: dict[str, Any]
    rows: tuple[dict[str, Any], ...]

    @property
    def direction(self) -> str:
        """What the recipe pushes, in words.

        >>> TrainingRun("a", {"regularisers": [["variance", {"direction": "increase"}]]}, ()).direction
        'variance increase'
        >>> TrainingRun("a", {"regularisers": []}, ()).direction
        'no regulariser'
        """
        said = []
        for name, settings in self.recipe.get("regularisers", []):
            how = settings.get("direction") or ", ".join(f"{v:g}" for v in settings.values() if isinstance(v, float))
            said.append(f"{name} {how}".strip())
        return ", ".join(said) or "no regulariser"

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of one figure, wherever the log has it as a number."""
        found = [(row["step"], row[name]) for row in self.rows if isinstance(row.get(name), (int, float))]
        return [step for step, _ in found], [float(value) for _, value in found]


def read_run(folder: str | os.PathLike[str]) -> TrainingRun:
    """Read the folder that `geoattn.training.train` wrote (``geoattn train --out``); also of a run under way.

    Examples
    --------
    >>> import tempfile
    >>> from geoattn.training import read_run
    >>> from geoattn.training import train
    >>> from geoattn.training import Recipe
    >>> out = tempfile.mkdtemp()
    >>> _ = train(Recipe("digits", epochs=2, limit=20, test_limit=10, changes={"depth": 1}), out)
    >>> run = read_run(out)
    >>> run.direction, run.series("loss")[0]
    ('no regulariser', [1, 2])
    """
    path = Path(folder)
    try:
        recipe = read_json(path / "recipe.json")
        rows = read_json_lines(path / "log.jsonl")
    except (OSError, ValueError):
        raise GeoattnError(
            f"{path} is not the folder of a training run: recipe.json and log.jsonl expected, as geoattn train --out"
            " writes them."
        ) from None
    good = isinstance(recipe, dict) and all(isinstance(row, dict) and isinstance(row.get("step"), int) for row in rows)
    if not good or not any("loss" in row for row in rows):
        raise GeoattnError(f"{path}: the log holds no finished epoch yet.")
    return TrainingRun(path.absolute().name, recipe, tuple(rows))
