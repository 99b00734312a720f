"""Where the figures of a callback go in the Trainer of transformers: to what ``report_to`` names.

The Trainer calls its own reporters before the callbacks of a user, so they do not see what such a callback adds to a
log. The figures are sent to the same run of TensorBoard, Weights & Biases or MLflow instead, as the reporters do.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnWarning
from geoattn.training.attachments import Sink
from geoattn.training.training_log import TensorBoard

__all__ = ["reporters"]


def reporters(args: Any) -> list[Sink]:
    """One sink for each name in ``report_to`` of the training arguments. The Trainer must have begun its runs."""
    unknown = [name for name in args.report_to if name not in _REPORTERS]
    if unknown:
        warnings.warn(
            f"figures of geoattn do not go to {', '.join(unknown)}, only to {', '.join(_REPORTERS)}; they are in"
            " trainer.state.log_history, and log= of the callback takes a function of (step, figures).",
            GeoattnWarning, stacklevel=3,
        )  # fmt: skip
    return [_REPORTERS[name](args) for name in args.report_to if name in _REPORTERS]


def _tensorboard(args: Any) -> Sink:
    """Another file in the folder that the Trainer has just made: TensorBoard shows both as one run."""
    folder = os.environ.get("TENSORBOARD_LOGGING_DIR") or getattr(args, "logging_dir", None)
    if not folder:
        files = list((Path(args.output_dir) / "runs").glob("*/events.*"))
        newest = max(files, key=lambda file: file.stat().st_mtime_ns, default=None)
        folder = Path(args.output_dir) / "runs" if newest is None else newest.parent
    board = TensorBoard(os.path.expanduser(folder))
    return lambda step, figures: board(step, {f"train/{name}": value for name, value in figures.items()})


def _wandb(_args: Any) -> Sink:
    def send(step: int, figures: dict[str, float]) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        if wandb.run is not None:
            named = {f"train/{name}": value for name, value in figures.items()}
            wandb.run.log({**named, "train/global_step": step})

    return send


def _mlflow(_args: Any) -> Sink:
    def send(step: int, figures: dict[str, float]) -> None:
        import mlflow  # pyright: ignore[reportMissingImports]

        if mlflow.active_run() is not None:
            mlflow.log_metrics({_mlflow_name(name): value for name, value in figures.items()}, step=step)

    return send


def _mlflow_name(name: str) -> str:
    """A name with one slash: MLflow keeps metrics as files, and ``variance`` is no folder when it is a file.

    >>> _mlflow_name("geoattn/variance/layers.0#1")
    'geoattn/variance.layers.0_1'
    """
    group, _, rest = name.partition("/")
    return re.sub(r"[^0-9A-Za-z_\-. :/]", "_", f"{group}/{rest.replace('/', '.')}")


_REPORTERS: dict[str, Callable[[Any], Sink]] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}
