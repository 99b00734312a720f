"""Which part of a model makes a loss that is not finite."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from geoattn.training.inputs import Inputs

__all__ = ["find_culprit"]


def find_culprit(model: nn.Module, data: Inputs, rows: Tensor, device: Any) -> str:
    """A weight that is not finite, or else the first layer with such an output on these rows, in words."""
    return _bad_weight(model) or _bad_output(model, data, rows, device)


def _bad_weight(model: nn.Module) -> str | None:
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            return f"weights of layer {name!r} are not finite"
    return None


@torch.no_grad()
def _bad_output(model: nn.Module, data: Inputs, rows: Tensor, device: Any) -> str:
    """Run the batch again and name the first module, in the order of their ends, that makes something not finite."""
    found: list[str] = []

    def look(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and not bool(output.isfinite().all()):
            found.append(name)

    hooks = [
        module.register_forward_hook(lambda _m, _i, output, name=name: look(name, output))
        for name, module in model.named_modules()
        if name
    ]
    try:
        logits = data.forward(model, rows, device)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return f"the first output that is not finite is that of layer {found[0]!r}"
    return "the penalty is not finite" if bool(logits.isfinite().all()) else "the logits are not finite"
