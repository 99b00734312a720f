"""An open capture over many visits: other modes, threads, errors and changes of what a module does."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.training.interventions.edge_mask import EdgeMask

FUSED = functional.scaled_dot_product_attention


class Fused(nn.Module):
    """Self-attention of two heads, all of it named in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 2
        self.dim = 8  # a number that goes by the name of a view
        self.to_qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.to_qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, self.dim)


class ByHand(Fused):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.to_qkv(x).chunk(3, -1)
        return (q @ k.transpose(1, 2)).softmax(-1) @ v


class Given(Fused):
    """May be given the function that makes its attention."""

    def forward(self, x: Tensor, attend: Any = None) -> Tensor:
        q, k, v = self.to_qkv(x).reshape(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        if attend is not None:
            return attend(q, k, v)
        return functional.scaled_dot_product_attention(q, k, v)


class Sometimes(nn.Module):
    """A second block, in some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Fused(), ByHand()
        self.both = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.second(x) if self.both else x


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))


def test_a_block_that_joins_in_later_is_not_missed(x: Tensor) -> None:
    model = Sometimes()
    with capture(model) as record:
        model(x)
        model(x)
        model.both = True
        model(x)
    assert [call.name for call in record] == ["first", "first", "first", "second"]


def test_what_a_module_is_given_may_be_attention(x: Tensor) -> None:
    def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).softmax(-1) @ v

    model = Given()
    with capture(model) as record:
        for given in ((x,), (x,), (x, by_hand), (x,)):
            model(*given)
    assert [call.route for call in record] == ["sdpa", "sdpa", "softmax", "sdpa"]


def test_another_mode_around(x: Tensor) -> None:
    class Other(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    model = Fused()
    with Other(), capture(model) as record:
        model(x)
        model(x)
    assert len(record) == 2


def test_an_intervention_is_seen_as_it_changes_the_logits() -> None:
    torch.manual_seed(0)
    model, images = LViT(LViTConfig(depth=1, dim=8, dim_head=8, mlp_dim=8)), torch.rand(2, 1, 28, 28)
    with capture(model) as record, EdgeMask(0.9).attach(model):
        model(images)
        model(images)
    assert all(bool((call.attention() == 0).any()) for call in record)


def test_somebody_elses_function_under_that_name(x: Tensor) -> None:
    def mine(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).softmax(-1) @ v

    model = Fused()
    with capture(model) as record:
        model(x)
        with mock.patch.object(functional, "scaled_dot_product_attention", mine):
            model(x)
            assert functional.scaled_dot_product_attention is mine
        model(x)
    assert [call.route for call in record] == ["sdpa", "softmax", "sdpa"]
    assert functional.scaled_dot_product_attention is FUSED


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_name_is_given_back_when_the_forward_pass_is_cut_short(x: Tensor, error: type[BaseException]) -> None:
    model = Fused()
    with capture(model) as record:
        model(x)
        handle = model.to_qkv.register_forward_hook(mock.Mock(side_effect=error))
        with pytest.raises(error):
            model(x)
        handle.remove()
        model(x)
        assert [call.name for call in record] == ["Fused", "Fused"]
    assert functional.scaled_dot_product_attention is FUSED
    assert not _get_current_function_mode_stack()


def test_two_captures_of_one_model(x: Tensor) -> None:
    model = Fused()
    with capture(model) as first, capture(model) as second:
        for _ in range(3):
            model(x)
    assert len(first) == len(second) == 3
    assert functional.scaled_dot_product_attention is FUSED


def test_another_thread_meanwhile(x: Tensor) -> None:
    """A capture of another model in another thread has its own record."""
    model, other = Fused(), Fused()
    lengths: list[int] = []

    def elsewhere() -> None:
        with capture(other) as record:
            other(x)
            other(x)
        lengths.append(len(record))
        functional.scaled_dot_product_attention(x, x, x)

    def meanwhile(*_: Any) -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    with capture(model) as record:
        model(x)
        handle = model.to_qkv.register_forward_hook(meanwhile)
        model(x)
        handle.remove()
    assert (len(record), lengths) == (2, [2])
    assert functional.scaled_dot_product_attention is FUSED


def test_checkpointing(x: Tensor) -> None:
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Fused()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.block, x, use_reentrant=False)

    model = Model()
    with capture(model) as record:
        for step in range(1, 4):
            model(x.requires_grad_()).sum().backward()
            assert len(record) == step
    assert functional.scaled_dot_product_attention is FUSED


class Scaled(Fused):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.to_qkv(x).reshape(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        return functional.scaled_dot_product_attention(q, k, v, scale=2.0).transpose(1, 2).flatten(2)


class Causal(Fused):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.to_qkv(x).reshape(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Spoiled(Fused):
    """Changes its queries in place after it has used them."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.to_qkv(x).reshape(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        out = functional.scaled_dot_product_attention(q, k, v)
        q.mul_(2.0)
        return out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("kind", [Fused, Scaled, Causal])
@pytest.mark.parametrize("cast", [False, True])
def test_a_second_visit_reads_as_the_first(kind: type[nn.Module], cast: bool, x: Tensor) -> None:
    model = kind()
    with capture(model) as record, torch.autocast("cpu", torch.bfloat16, enabled=cast):
        model(x)
        model(x)
    first, second = record
    for part in ("name", "kind", "route", "shape"):
        assert getattr(first, part) == getattr(second, part), part
    assert second.visit == 1
    torch.testing.assert_close(first.attention(), second.attention(), rtol=0, atol=0)
    assert torch.equal(first.valid, second.valid)


def test_calls_are_reduced_at_once(x: Tensor) -> None:
    model = Fused()
    with capture(model, reduce=lambda call: call.attention()) as record:
        model(x)
        model(x)
        assert len(record._calls) == 2
    torch.testing.assert_close(record[0].reduced, record[1].reduced)


def test_queries_that_change_after_the_call_are_not_read(x: Tensor) -> None:
    model = Spoiled()
    with torch.no_grad(), capture(model) as record:
        model(x)
        record.clear()
        model(x)
        with pytest.raises(GeoattnError, match="changed in place"):
            record[0].attention()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch, in attention under vmap
def test_vmap_is_refused_at_any_visit(x: Tensor) -> None:
    model = Fused()
    with torch.no_grad(), capture(model):
        model(x)
        with pytest.raises(GeoattnError, match=r"torch\.vmap"):
            torch.vmap(model)(x[None])
