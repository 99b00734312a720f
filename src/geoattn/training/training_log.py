"""Where figures of training go: JSON lines, TensorBoard, Weights & Biases."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Literal

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.read_limit import Budget, memory_of
from geoattn._core.text_files import lines_of, parse_json

__all__ = ["JsonLines", "TensorBoard", "WandB", "read_json_lines"]


class JsonLines:
    """One JSON object per call, appended to a file; numbers that are not finite become null.

    >>> import tempfile, pathlib
    >>> from geoattn.training import JsonLines, read_json_lines
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> log = JsonLines(path)
    >>> log(0, {"loss": 2.5, "penalty": float("nan")})
    >>> read_json_lines(path)
    [{'step': 0, 'loss': 2.5, 'penalty': None}]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, step: int, figures: dict[str, Any]) -> None:
        """Append one line."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **{k: _plain(v) for k, v in figures.items()}}) + "\n")
            file.flush()
            os.fsync(file.fileno())  # the checkpoint that follows counts on it

    def rewind(self, step: int) -> None:
        """Forget the lines after a step: a run that resumes will write them again. A line cut short goes too."""
        if self.path.exists():
            kept = [row for row in read_json_lines(self.path) if row["step"] <= step]
            text = "".join(json.dumps(row) + "\n" for row in kept)
            write_atomically(self.path, lambda file: file.write(text.encode()))


def read_json_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a log; a last line that a kill cut short is left out.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from geoattn.training import read_json_lines
    >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> _ = path.write_text('{"step": 0, "loss": 2.3}')
    >>> read_json_lines(path)
    [{'step': 0, 'loss': 2.3}]
    """
    rows = []
    budget = Budget(path, "its rows")
    for line in lines_of(Path(path)):
        try:
            rows.append(parse_json(line))
        except ValueError:
            break
        budget.spend(memory_of(rows[-1]))
    return rows


class TensorBoard:
    """Scalars for TensorBoard. Needs the package ``tensorboard``.

    Examples
    --------
    >>> from geoattn.training import TensorBoard
    >>> callable(TensorBoard)  # TensorBoard("runs/one") is a log= of attach, train and the callbacks
    True
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise GeoattnError("TensorBoard is not installed: pip install tensorboard") from None
        self._writer = SummaryWriter(str(folder))

    def __call__(self, step: int, figures: dict[str, Any]) -> None:
        """Add the numbers of one step."""
        for name, value in figures.items():
            if isinstance(value, (int, float)):
                self._writer.add_scalar(name, value, step)
        self._writer.flush()


class WandB:
    """Numbers for Weights & Biases, offline unless told otherwise. Needs the package ``wandb``.

    Examples
    --------
    >>> from geoattn.training import WandB
    >>> callable(WandB)  # WandB(project="mine") is a log= of attach, train and the callbacks
    True
    """

    def __init__(
        self,
        project: str,
        *,
        folder: str | os.PathLike[str] | None = None,
        mode: Literal["online", "offline", "disabled", "shared"] = "offline",
    ) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise GeoattnError("Weights & Biases is not installed: pip install wandb") from None
        self._run = wandb.init(project=project, dir=None if folder is None else str(folder), mode=mode)

    def __call__(self, step: int, figures: dict[str, Any]) -> None:
        """Log the numbers of one step."""
        self._run.log({k: v for k, v in figures.items() if isinstance(v, (int, float))}, step=step)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
