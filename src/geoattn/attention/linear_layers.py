"""What goes in and out of the linear layers of a model: attention is made from some of them and read by others."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple

from torch import Tensor, nn

__all__ = ["LinearLayers", "LinearPass"]


class LinearPass(NamedTuple):
    """One pass through a linear layer: ``output`` = ``input`` weight^T + bias, ``weight`` (out, in).

    Examples
    --------
    >>> import torch
    >>> from geoattn.attention import LinearLayers
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    >>> with LinearLayers(model) as layers:
    ...     _ = model(torch.zeros(5, 4))
    >>> one = layers.passes[0]
    >>> one.name, one.weight.shape, one.output.shape
    ('0', torch.Size([3, 4]), torch.Size([5, 3]))
    """

    name: str
    weight: Tensor
    input: Tensor
    output: Tensor


class LinearLayers:
    """Notes the input and the output of every linear layer (nn.Linear, Conv1D of transformers) in the block.

    Examples
    --------
    >>> import torch
    >>> from geoattn.attention import LinearLayers
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> with LinearLayers(model) as layers:
    ...     _ = model(torch.zeros(5, 4))
    >>> [(one.name, tuple(one.input.shape), tuple(one.weight.shape)) for one in layers.passes]
    [('0', (5, 4), (3, 4)), ('2', (5, 3), (2, 3))]
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._handles: list[Any] = []
        self.passes: list[LinearPass] = []

    def __enter__(self) -> "LinearLayers":
        for name, module in self._model.named_modules():
            turned = type(module).__name__ == "Conv1D"  # of transformers: its weight is (in, out)
            if isinstance(module, nn.Linear) or (turned and isinstance(getattr(module, "weight", None), Tensor)):
                self._handles.append(module.register_forward_hook(self._hook(name, turned)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def inside(self, name: str, visit: int = 0) -> list[LinearPass]:
        """Passes through the layers within a module, on its given visit."""
        found: dict[str, list[LinearPass]] = {}
        for one in self.passes:
            if name == "" or one.name == name or one.name.startswith(name + "."):
                found.setdefault(one.name, []).append(one)
        return [many[visit] for many in found.values() if visit < len(many)]

    def _hook(self, name: str, turned: bool) -> Any:
        def note(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if arguments and isinstance(arguments[0], Tensor) and isinstance(output, Tensor):
                weight = module.weight.T if turned else module.weight  # pyright: ignore
                self.passes.append(LinearPass(name, weight, arguments[0], output))  # pyright: ignore

        return note
