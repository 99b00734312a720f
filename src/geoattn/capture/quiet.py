"""Modules whose own code cannot be attention: there the function mode may be off."""

from __future__ import annotations

import dis
from functools import cache
from types import CodeType

from torch import nn

__all__ = ["is_plain", "only_calls_others"]


def is_plain(module: nn.Module, known: dict[nn.Module, bool] | None = None) -> bool:
    """True for layers of torch.nn without attention, and for modules that do nothing but call such layers.

    ``known`` remembers the answers for all modules below, for who asks about each module of a model.

    Examples
    --------
    >>> from torch import nn
    >>> is_plain(nn.Sequential(nn.Linear(2, 2), nn.Dropout())), is_plain(nn.TransformerEncoderLayer(4, 2))
    (True, False)
    """
    known = {} if known is None else known
    if module not in known:
        known[module] = _is_plain(module, known)
    return known[module]


def _is_plain(module: nn.Module, known: dict[nn.Module, bool]) -> bool:
    if isinstance(module, nn.MultiheadAttention) or not all(is_plain(child, known) for child in module.children()):
        return False
    if "forward" in vars(module) or type(module).__call__ is not nn.Module.__call__:
        return False  # somebody's own way to call it
    return type(module).__module__.startswith("torch.nn.modules.") or only_calls_others(module)


def only_calls_others(module: nn.Module) -> bool:
    """True when the forward of a module names nothing but its children, and does nothing but call them and add.

    `x + self.attention(self.norm(x))` is such code: there is attention in it only where a child has it.
    """
    if "forward" in vars(module) or any(isinstance(child, nn.Softmax) for child in module.children()):
        return False  # a softmax among children may be the one of attention between others
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and all(name in module._modules for name in code.co_names) and _only_adds(code)


@cache
def _only_adds(code: CodeType) -> bool:
    if code.co_freevars or any(isinstance(constant, CodeType) for constant in code.co_consts):
        return False
    operators = [step.argrepr for step in dis.get_instructions(code) if step.opname == "BINARY_OP"]
    return all(operator in ("+", "+=") for operator in operators)
