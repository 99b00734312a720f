"""Copies and files of a model leave out what is attached to it.

Hooks are part of the state of a module, so `copy.deepcopy` would copy them and `torch.save` could not write them. While
something is attached, each module with hooks of this package has a ``__getstate__`` of its own that leaves them out.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

from torch import nn

__all__ = ["copy_as_before", "copy_without_hooks"]

_NAME = "__getstate__"
_PACKAGE = __name__.split(".")[0] + "."


def copy_without_hooks(module: nn.Module) -> None:
    """Let copies and files of this module leave out the hooks and methods that this package has put on it.

    Examples
    --------
    >>> import copy, torch, geoattn as ga
    >>> model = ga.models.LViT()
    >>> with ga.capture(model) as record:
    ...     twin = copy.deepcopy(model)
    ...     len(model._forward_hooks), len(twin._forward_hooks)
    (1, 0)
    """
    if _NAME not in vars(module):
        vars(module)[_NAME] = MethodType(_state_without_hooks, module)


def copy_as_before(module: nn.Module) -> None:
    """Undo `copy_without_hooks`."""
    if _is_ours(vars(module).get(_NAME)):
        del vars(module)[_NAME]


def _state_without_hooks(module: nn.Module) -> Any:
    kind = type(module)
    written = getattr(kind, _NAME, None)  # objects have one from Python 3.11 on
    state = dict(vars(module)) if written is None else written(module)
    if not isinstance(state, dict):
        return state
    hooks = {**state.get("_forward_hooks", {}), **state.get("_forward_pre_hooks", {})}
    ours = {number for number, hook in hooks.items() if _is_ours(hook)}
    return {
        name: _without(value, ours) if name.startswith("_forward_") else value
        for name, value in state.items()
        if not (_is_ours(value) and (name == _NAME or hasattr(kind, name)))
    }


def _without(hooks: Any, ours: set[int]) -> Any:
    """The dictionary of hooks, or of what is known of them by number, without these numbers."""
    if not isinstance(hooks, dict):
        return hooks
    return type(hooks)((number, value) for number, value in hooks.items() if number not in ours)


def _is_ours(value: Any) -> bool:
    return isinstance(value, (FunctionType, MethodType)) and str(value.__module__).startswith(_PACKAGE)
