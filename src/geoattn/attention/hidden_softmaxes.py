"""Softmaxes that run where no function mode sees them: inside TorchScript, or in a kernel of another library.

A dispatch mode sees each operation that reaches a kernel, and costs some microseconds for each. So it is active in the
first forward pass of a model only, once in training and once in evaluation, and later passes are told what it found.
"""

from __future__ import annotations

from typing import Any, no_type_check
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from geoattn.attention.account import SoftmaxUse
from geoattn.attention.torch_compile import is_compiled

__all__ = ["HiddenSoftmaxes"]

_KERNELS = {
    torch.ops.aten._softmax.default,
    torch.ops.aten._safe_softmax.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
}


@no_type_check
class HiddenSoftmaxes(TorchDispatchMode):
    """Notes each softmax of a forward pass that runs while nobody expects one.

    ``expected`` is above zero while a function mode runs a function that it knows. What this package computes itself
    runs with function modes disabled. ``found`` are the softmaxes of a forward pass that begins at a module.
    """

    expected = 0

    def __init__(self, running: list[Any]) -> None:
        super().__init__()
        self._running = running
        self.is_active = False
        self.ran: set[str] = set()  # names of the modules that ran
        self.heard: set[str] = set()  # of those in which scores or a softmax were made
        self.loud: set[str] = set()  # of those, and of the modules around them
        self._current: list[SoftmaxUse] = []
        self._found = {False: WeakKeyDictionary(), True: WeakKeyDictionary()}  # by training

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _KERNELS and HiddenSoftmaxes.expected == 0 and not torch._C._is_torch_function_all_disabled():
            tensor = out[0] if isinstance(out, tuple) else out
            axis = args[1] - tensor.ndim if len(args) > 1 and isinstance(args[1], int) and args[1] >= 0 else -1
            name = self._running[-1].name if self._running else ""
            self._current.append(SoftmaxUse(name, tuple(tensor.shape), axis, "hidden"))
        return out

    def start(self, module: nn.Module) -> bool:
        """A forward pass begins at a module; True when it is the first."""
        known = self._found[module.training]
        if self.is_active or module in known or is_compiled(module):
            return False
        self._current = known[module] = []
        self.is_active = True
        self.ran.clear()
        self.__enter__()
        return True

    def stop(self) -> bool:
        """It has ended, or was cut short; True when it was the first."""
        if not self.is_active:
            return False
        self.is_active = False
        self.__exit__(None, None, None)
        return True

    def found(self, module: nn.Module) -> list[SoftmaxUse]:
        """What the first pass that began at the module found."""
        return self._found[module.training].get(module, [])
