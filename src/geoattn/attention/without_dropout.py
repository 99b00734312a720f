"""Functions after dropout, repeated without it: the map that is recorded is the one that the model uses on average.

torch.compile traces this code: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, no_type_check

from torch import Tensor

from geoattn.attention.function_kinds import IN_PLACE, STORES

__all__ = ["clean_arguments", "clean_keywords", "copy_before_change"]


@no_type_check
def copy_before_change(func: Any, args: Any, given: Any) -> Any:
    """A copy of the weights without dropout that a function in place would change; None when it is none."""
    for one in given:
        if one.dropped and len(args) > 0 and one.tensor is args[0] and (func in STORES or func in IN_PLACE):
            return one.weights.to(one.tensor.dtype, copy=True)
    return None


@no_type_check
def clean_arguments(args: Any, given: Any) -> list[Any]:
    """The arguments without dropout."""
    clean = []
    for value in args:
        if isinstance(value, (list, tuple)) and any([isinstance(inner, Tensor) for inner in value]):
            clean.append(type(value)([_without_dropout(inner, given) for inner in value]))
        else:
            clean.append(_without_dropout(value, given))
    return clean


@no_type_check
def clean_keywords(kwargs: Any, given: Any) -> dict[str, Any]:
    """The keyword arguments without dropout."""
    return {key: _without_dropout(value, given) for key, value in kwargs.items()}


@no_type_check
def _without_dropout(value: Any, given: Any) -> Any:
    for one in given:
        if one.tensor is value:
            return one.weights if one.weights.dtype == value.dtype or not one.dropped else one.weights.to(value.dtype)
    return value
