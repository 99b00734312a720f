"""What a user calls a batch, and how a model is called with it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError

__all__ = ["Batch", "evaluation", "read_batch"]


@dataclass(frozen=True, eq=False)
class Batch:
    """One call of the model. ``ids`` (size, n) are token numbers, ``images`` (size, c, height, width) pixels."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    size: int
    ids: Tensor | None
    images: Tensor | None

    def samples(self) -> Iterator[bytes]:
        """What tells one sample from another: token numbers without padding on the right, or pixels."""
        shown = self.ids if self.ids is not None else self.images
        if shown is None:
            shown = next(v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Tensor) and v.ndim)
        for row in shown.detach().cpu():
            yield row.contiguous().view(torch.uint8).numpy().tobytes() if row.ndim else str(row.item()).encode()

    def run(self, model: nn.Module) -> None:
        """The forward pass. What the model raises becomes one line that says where, with the rest as its cause."""
        try:
            model(*self.args, **self.kwargs)
        except Exception as error:
            if isinstance(error, (GeoattnError, MemoryError)) or _is_ours(error):
                raise
            trace = traceback.extract_tb(error.__traceback__)
            text = (str(error).splitlines() or [""])[0]
            given = ", ".join(_what(value) for value in (*self.args, *self.kwargs.values()))
            raise GeoattnError(
                f"the model raised {type(error).__name__} in its forward pass ({text}) at"
                f" {Path(trace[-1].filename).name}:{trace[-1].lineno}; it was given {given}. Run it alone on that."
            ) from error


def _is_ours(error: Exception) -> bool:
    """Whether it comes from the lenses that run inside the forward pass, not from the model: a bug of ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return name.startswith("geoattn.") and not name.startswith(("geoattn.attention.", "geoattn.training."))


def read_batch(item: Any, model: nn.Module, number: int) -> Batch:
    """A tensor, a mapping of keyword arguments, or a tuple whose first part is one of them, on the model's device."""
    place = f"batch {number}"
    if isinstance(item, (tuple, list)) and item and not isinstance(item[0], str):
        item = item[0]  # (inputs, labels), as data loaders give them
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if isinstance(item, Tensor):
        item = item.to(device)
        args, kwargs, tensors = (item,), {}, [item]
    elif isinstance(item, Mapping) and item and all(isinstance(key, str) for key in item):
        kwargs = {key: value.to(device) if isinstance(value, Tensor) else value for key, value in item.items()}
        args, tensors = (), [value for value in kwargs.values() if isinstance(value, Tensor) and value.ndim]
    else:
        raise GeoattnError(
            f"{place} must be a tensor, a mapping of the model's arguments, or a tuple that begins with one; got"
            f" {_what(item)}."
        )
    if not tensors or len(tensors[0]) == 0:
        raise GeoattnError(f"{place} holds no sample.")
    ids = kwargs.get("input_ids")
    if ids is None and args and not args[0].is_floating_point() and args[0].ndim == 2:
        ids = args[0]
    images = next((t for t in tensors if t.is_floating_point() and t.ndim == 4), None)
    return Batch(args, kwargs, len(tensors[0] if ids is None else ids), ids, images)


def _what(item: Any) -> str:
    if isinstance(item, str) or (isinstance(item, (list, tuple)) and item and isinstance(item[0], str)):
        return "text: tokenise it first, or give a dataset with tokenizer="
    return type(item).__name__


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients within; each module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
