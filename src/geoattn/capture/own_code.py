"""What attention the code of a module can make, read from the code itself."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from geoattn.capture.products import BIASED, PRODUCTS
from geoattn.capture.quiet import is_plain
from geoattn.capture.trails import SOFTMAXES

__all__ = ["fused_or_none"]

_FUSED = "scaled_dot_product_attention"
_PACKAGES = {"torch": torch, "nn": nn, "functional": functional}
_VIEWS = frozenset(
    "chunk contiguous dim flatten ndim permute reshape shape size split transpose unbind unflatten view".split()
)
_OPERATORS = frozenset("+ - * / // += -= *= /= //=".split())
_OTHERWISE = frozenset(function.__name__ for function in (*SOFTMAXES, *PRODUCTS, *BIASED))


def fused_or_none(module: nn.Module) -> bool:
    """True when the attention of a module can be nothing but ``F.scaled_dot_product_attention``, called by that name.

    Its forward may name numbers, parameters and children of its own, plain ones, changes of shape, and that function
    of ``torch.nn.functional``; it may do sums and products entry by entry.

    Examples
    --------
    >>> from geoattn.training.lvit import LViT
    >>> fused_or_none(LViT().transformer.layers[0][0]), fused_or_none(nn.MultiheadAttention(4, 2))
    (True, False)
    """
    forward = type(module).forward
    if "forward" in vars(module) or type(module).__call__ is not nn.Module.__call__:
        return False
    if not isinstance(forward, FunctionType) or not all(map(is_plain, module.children())):
        return False
    if any(isinstance(inner, nn.Softmax) for inner in module.modules()):
        return False  # who is called with its weights may multiply them with values
    code = forward.__code__
    if code.co_freevars or any(isinstance(constant, CodeType) for constant in code.co_consts):
        return False
    if not all(
        _is_number(value) for value in (*(forward.__defaults__ or ()), *(forward.__kwdefaults__ or {}).values())
    ):
        return False
    return all(_is_known(step, module, forward.__globals__) for step in dis.get_instructions(code))


def _is_known(step: dis.Instruction, module: nn.Module, names: dict[str, Any]) -> bool:
    if step.opname == "BINARY_OP":
        return step.argrepr in _OPERATORS
    if step.opcode not in dis.hasname:
        return True
    name = step.argval
    if step.opname == "LOAD_GLOBAL":
        return any(names.get(name) is package for package in _PACKAGES.values())
    if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
        return False
    if name in _OTHERWISE:
        return False  # even where a number or a child goes by that name: the function may be meant
    own = vars(module)
    if name in own["_modules"] or name in own["_parameters"] or (name in own and _is_number(own[name])):
        return True
    # a method of its own may be anything
    return (name == _FUSED or name in _VIEWS or name in _PACKAGES) and not hasattr(module, name)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
