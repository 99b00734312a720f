"""Caches of keys: one that grows is kept once, one that is overwritten or reordered is read at once."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor, nn
from torch.nn import functional

from geoattn import GeoattnError
from geoattn.attention import capture
from tests.attention.zoo import ARCHITECTURES

STEPS = 6


class Cached(nn.Module):
    """Attention of two heads with a cache; ``join`` makes the new keys or values from the old ones and one more."""

    def __init__(self, join: Any) -> None:
        super().__init__()
        self.join = join
        self.project = nn.Linear(8, 24)
        self.past: Any = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.past is not None:
            k, v = self.join(self.past[0], k), self.join(self.past[1], v)
        self.past = k, v
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def _by_hand(module: Cached, x: Tensor, length: int) -> Tensor:
    q, k, _ = module.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    return (q[:, :, length - 1 : length] @ k[:, :, :length].transpose(-1, -2) / 2).softmax(-1)


def _copies(past: Tensor, new: Tensor) -> Tensor:
    return torch.cat([past, new], dim=-2).clone()


JOINS = {
    "cat": lambda past, new: torch.cat([past, new], dim=-2),
    "cat by keyword": lambda past, new: torch.concat(tensors=(past, new), dim=2),
    "copies": _copies,
}


@pytest.mark.parametrize("join", JOINS)
@torch.no_grad()
def test_rows_are_those_of_the_whole_sequence(join: str) -> None:
    torch.manual_seed(0)
    module, x = Cached(JOINS[join]).eval(), torch.randn(3, STEPS, 8)
    with capture(module) as record:
        for i in range(STEPS):
            module(x[:, i : i + 1])
            if i == 3:
                assert record[3].shape == (3, 2, 1, 4)  # read while the cache is growing
    assert [call.shape for call in record] == [(3, 2, 1, i + 1) for i in range(STEPS)]
    for i, call in enumerate(record):
        torch.testing.assert_close(call.attention(), _by_hand(module, x, i + 1))
    assert all(check.ok and check.error < 1e-5 for check in record.check())


@torch.no_grad()
def test_a_cache_that_grows_is_kept_once() -> None:
    torch.manual_seed(0)
    module = Cached(JOINS["cat"]).eval()
    with capture(module) as record:
        for _ in range(STEPS):
            module(torch.randn(1, 1, 8))
        waiting = [raw for raw, _ in record._waiting if raw.cached is not None]
        assert len(waiting) >= STEPS - 3
        assert {raw.cached[0].latest.data_ptr() for raw in waiting} == {module.past[0].data_ptr()}
    assert waiting[0].cached[1].latest.shape[:2] == (1, 1)  # of the values, what the self-check needs


@torch.no_grad()
def test_two_captures_of_one_generation() -> None:
    torch.manual_seed(0)
    module, x = Cached(JOINS["cat"]).eval(), torch.randn(2, STEPS, 8)
    with capture(module) as whole:
        for i in range(4):
            module(x[:, i : i + 1])
        with capture(module) as part:
            module(x[:, 4:5])
        module(x[:, 5:6])
    assert part[0].shape[3] == 5
    for i, call in enumerate(whole):
        torch.testing.assert_close(call.attention(), _by_hand(module, x, i + 1))
    assert all(check.ok for check in (*whole.check(), *part.check()))


@torch.no_grad()
def test_keys_that_change_in_place_are_refused_and_never_wrong() -> None:
    torch.manual_seed(0)
    module, x = Cached(JOINS["cat"]).eval(), torch.randn(2, STEPS, 8)
    with capture(module) as record:
        for i in range(STEPS):
            module(x[:, i : i + 1])
        module.past[0].mul_(2)
    torch.testing.assert_close(record[1].attention(), _by_hand(module, x, 2))  # the first step kept its rows
    with pytest.raises(GeoattnError, match="changed in place"):
        record[STEPS - 1].attention()


@torch.no_grad()
def test_a_cache_of_fixed_length_is_read_at_once() -> None:
    torch.manual_seed(0)
    module, x = Cached(None).eval(), torch.randn(2, STEPS, 8)
    buffers = torch.zeros(2, 2, STEPS, 4), torch.zeros(2, 2, STEPS, 4)
    place, calls = 0, count()

    def store(_: Tensor, new: Tensor) -> Tensor:
        buffer = buffers[next(calls) % 2]
        buffer[:, :, place : place + 1] = new
        return buffer[:, :, : place + 1]

    module.join, module.past = store, (None, None)
    with capture(module) as record:
        for place in range(STEPS):
            module(x[:, place : place + 1])
    for i, call in enumerate(record[1:], start=1):  # the first one reads no cache
        torch.testing.assert_close(call.attention(), _by_hand(module, x, i + 1))


@torch.no_grad()
def test_beams_that_change_places() -> None:
    model: Any = tf.LlamaForCausalLM(ARCHITECTURES["llama"].config()).eval()
    torch.manual_seed(0)
    prompt = torch.randint(3, 50, (1, 5))
    options = {"max_new_tokens": STEPS, "min_new_tokens": STEPS, "do_sample": False, "pad_token_id": 0, "num_beams": 3}
    with capture(model) as record:
        model.generate(prompt, **options)
    rows: list[Any] = []
    with capture(model, reduce=lambda call: rows.append(call.attention())):
        model.generate(prompt, **options)
    assert len(rows) == len(record)
    for call, row in zip(record, rows, strict=True):
        torch.testing.assert_close(call.attention(), row, atol=1e-6, rtol=0)
    assert all(check.ok for check in record.check())
