"""Many types of models: what is captured is what ran, and every softmax has an account."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from geoattn.attention import capture
from tests.attention.model_types import TYPES, build, food

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
_SOFTMAXES = (torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default)


class Log(TorchDispatchMode):
    """Keeps the result of every softmax that reaches a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _SOFTMAXES:
            self.maps.append(out.clone())
        return out


def test_there_are_enough_types() -> None:
    assert len(set(TYPES)) == len(TYPES) >= 60


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", TYPES)
def test_captured_is_what_ran(kind: str, implementation: str) -> None:
    model = build(kind, implementation)
    batch = food(model)
    log = Log()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", category=UserWarning)
        with capture(model):  # checks itself, and warns of what is missing
            model(**batch)
        with sdpa_kernel(SDPBackend.MATH), log, capture(model, inputs=True) as record:
            model(**batch)
            ran = list(log.maps)
    account = record.account()
    assert len(account) == len(ran)
    assert not [one for one in account if one.is_missing]
    assert sum(one.use in ("captured", "fused") for one in account) == len(record)
    for call in record:
        b, h, n, m = call.shape
        weights = call.attention().flatten()
        same = [i for i, one in enumerate(ran) if one.numel() == weights.numel() and _close(one.flatten(), weights)]
        assert same, f"{call} is none of the maps that ran"
        ran.pop(same[0])
        assert call.query.shape[:3] == (b, h, n)
        assert call.key.shape[2] == m
    assert all(check.ok and check.error < 1e-4 for check in record.check())


def _close(one: Tensor, other: Tensor) -> bool:
    if torch.allclose(one, other, atol=1e-5):
        return True
    return torch.allclose(one.sort().values, other.sort().values, atol=1e-5)  # heads joined with samples
