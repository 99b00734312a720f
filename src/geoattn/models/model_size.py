"""How large a model would be, from its configuration alone: before anything is allocated for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn._core.read_limit import check_need
from geoattn._core.visible import visible

__all__ = ["check_settings", "check_size"]

_MODULE = 8_000  # bytes that Python takes for a module without weights
#: By what is in its name, how large a whole number of a configuration may be. The first that fits counts.
_MOST = (
    (re.compile(r"param|seed|flops|seen"), 2**63),  # notes on how it was made
    (re.compile(r"layers?$|layer_|depth|blocks?$|stages?$"), 2**14),
    (re.compile(r"labels?$|class|heads?$|experts?$|groups?$"), 2**20),
    (re.compile(r""), 2**25),
)


def check_settings(content: Any, where: str) -> None:
    """An error of one line for a whole number of a configuration that is too large to be meant.

    Transformers makes a list or a table of some of them before it makes a model.

    >>> check_settings({"model_type": "bert", "num_hidden_layers": 10**9}, "config.json")
    Traceback (most recent call last):
    geoattn._core.errors.GeoattnError: config.json: num_hidden_layers must be at most 16384; got 1000000000.
    """
    waiting: list[tuple[str, Any]] = [("", content)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(str(key), one) for key, one in value.items()]
        elif isinstance(value, list):
            waiting += [(name, one) for one in value]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            most = next(most for pattern, most in _MOST if pattern.search(name))
            if abs(value) > most and not (isinstance(value, float) and most == _MOST[-1][1]):
                raise GeoattnError(f"{where}: {visible(name)} must be at most {most}; got {str(value)[:20]}.")


def check_size(build: Callable[[], Any], where: Any, *, most: int | None = None) -> None:
    """Make the model without memory for its weights, and stop as soon as it is larger than it may be.

    ``most``: what the weights may take, by default what `allowance` says of ``where``.

    >>> check_size(lambda: nn.Linear(10**6, 10**6), "config.json")
    Traceback (most recent call last):
    geoattn._core.errors.GeoattnError: config.json asks for 4,000 GB of memory (a model of 1,000,000,000,000 ...
    """
    numbers = modules = 0

    def count(_: nn.Module, __: str, tensor: Any) -> None:
        nonlocal numbers, modules
        if isinstance(tensor, torch.Tensor):
            numbers += tensor.numel()
        modules += isinstance(tensor, nn.Module)
        check_need(where, 4 * numbers + _MODULE * modules, f"a model of {numbers:,} numbers", most=most)

    with _watched(count), torch.device("meta"), torch.random.fork_rng(devices=[]):
        build()


@contextmanager
def _watched(count: Callable[[nn.Module, str, Any], None]) -> Iterator[None]:
    """``count(module, name, what)`` is called for all that is put into a module."""
    from torch.nn.modules import module

    hooks = [
        register(count)
        for register in (
            module.register_module_parameter_registration_hook,
            module.register_module_buffer_registration_hook,
            module.register_module_module_registration_hook,
        )
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
