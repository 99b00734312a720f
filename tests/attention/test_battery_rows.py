"""Models that were recorded wrongly or not at all: the map that they use, or the reason why it is not recorded."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from tests.attention.battery import MIXED, WIDTH, B, D, H, N, Own, head_loop, record_of, soft
from tests.attention.blocks import by_hand

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.filterwarnings("ignore::geoattn.attention.CaptureWarning")  # rows that are mixtures
@pytest.mark.parametrize("form", MIXED)
def test_training_with_hardly_any_dropout_is_evaluation(x: Tensor, form: str) -> None:
    model: Any = MIXED[form]()
    model.p = 1e-7
    with torch.no_grad(), capture(model) as expected:
        model.eval()(x)
    with torch.no_grad(), capture(model) as record:
        model.train()(x)
    torch.testing.assert_close(record[0].attention(), expected[0].attention())
    assert record.check()[0].error < 1e-4  # and the check works under dropout


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


def test_attention_inside_torchscript_is_said_to_be_missing(x: Tensor) -> None:
    scripted = torch.jit.script(plain)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Own(lambda m, q, k, v: (soft(q, k) @ v).transpose(1, 2).flatten(2))
            self.second = Own(lambda m, q, k, v: scripted(q, k, v))

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    model = Two()
    for _ in range(2):  # a second capture knows it from the first
        record, said = record_of(model, x)
        assert record.names == ["first"]
        assert [(one.name, one.use) for one in record.account()] == [("first", "captured"), ("second", "hidden")]
        assert len(said) == 1
        assert "in 'second' is not in the record: it ran where Python does not see it" in said[0]


class Crossed(nn.Module):
    """f(x, y) with sequences of equal length: ``positions`` says that y is added to x and that all else is x."""

    num_heads = H

    def __init__(self, fused: bool, positions: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.kv, self.fused, self.positions = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            fused,
            positions,
        )

    def heads(self, x: Tensor, y: Tensor) -> list[Tensor]:
        x, y = (x + y, x + y) if self.positions else (x, y)
        parts = [self.q(x), *self.kv(y).chunk(2, -1)]
        return [t.reshape(*t.shape[:2], H, D).transpose(1, 2) for t in parts]

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        q, k, v = self.heads(x, y)
        if self.fused:
            return functional.scaled_dot_product_attention(q, k, v, scale=1.0)
        return torch.softmax(q @ k.mT, -1) @ v


@pytest.mark.parametrize("fused", [True, False])
def test_cross_and_self_at_equal_lengths(x: Tensor, fused: bool) -> None:
    y = x.flip(0)
    model = nn.ModuleList([Crossed(fused, positions=False), Crossed(fused, positions=True)])
    with torch.no_grad(), capture(model, inputs=True) as record:
        model[0](x, y)
        model[1](x, y)
        model[0](x, x)
    assert [call.kind for call in record] == ["cross", "self", "self"]
    assert record[0].source is y
    q, k, _ = model[0].heads(x, y)
    torch.testing.assert_close(record[0].attention().double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)


def test_columns_of_an_alignment(x: Tensor) -> None:
    """MSA Transformer, columns: (heads, columns, batch) in front, as many samples as heads or not."""

    class Column(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

        def heads(self, x: Tensor) -> list[Tensor]:
            return [t.reshape(*x.shape[:3], H, D) for t in self.qkv(x).chunk(3, -1)]

        def forward(self, x: Tensor) -> Tensor:  # rows, columns, batch, width
            q, k, v = self.heads(x)
            weights = torch.einsum("icnhd,jcnhd->hcnij", q, k).softmax(-1)
            return torch.einsum("hcnij,jcnhd->icnhd", weights, v)

    for batch in (2, H):
        model, x = Column(), torch.randn(3, 5, batch, WIDTH)
        record, said = record_of(model, x, inputs=True)
        q, k, _ = model.heads(x)
        expected = torch.einsum("icnhd,jcnhd->cnhij", q, k).softmax(-1).flatten(0, 1)
        torch.testing.assert_close(record[0].attention(), expected)
        assert record[0].query.shape == (5 * batch, H, 3, D)
        assert not said


def test_tied_rows_with_as_many_samples_as_heads() -> None:
    class Row(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

        def heads(self, x: Tensor) -> list[Tensor]:
            return [t.reshape(*x.shape[:3], H, D) for t in self.qkv(x).chunk(3, -1)]

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            weights = torch.einsum("rinhd,rjnhd->hnij", q, k).softmax(-1)
            return torch.einsum("hnij,rjnhd->rinhd", weights, v)

    model, x = Row(), torch.randn(2, N, H, WIDTH)
    record, _ = record_of(model, x, inputs=True)
    q, k, _ = model.heads(x)
    torch.testing.assert_close(record[0].attention(), torch.einsum("rinhd,rjnhd->nhij", q, k).softmax(-1))
    scores = record[0].query @ record[0].key.transpose(-1, -2)
    torch.testing.assert_close(scores.softmax(-1), record[0].attention())


def test_dropout_by_hand_has_its_name(x: Tensor) -> None:
    """SEW-D and DeBERTa: a random mask, then a scale."""

    def attend(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = soft(q, k)
        if m.training:
            mask = (1 - torch.empty_like(weights).bernoulli_(0.9)).bool()
            weights = weights.masked_fill(mask, 0) * (1 / 0.9)
        return weights @ v

    model = Own(attend)
    _, said = record_of(model.eval(), x)
    assert not said
    record, said = record_of(model.train(), x)
    assert len(said) == 1
    assert "drops weights with a random mask of its own" in said[0]
    assert not record.check()[0].ok


def test_maps_that_are_mixed_into_another(x: Tensor) -> None:
    """ConViT: a gate between the map of contents and that of positions."""

    def attend(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        position = m.bias.expand(len(q), -1, -1, -1).softmax(-1)
        return (0.3 * position + 0.7 * soft(q, k)) @ v

    torch.manual_seed(0)
    model = Own(attend, bias=torch.randn(1, H, N, N))
    record, said = record_of(model, x)
    q, k, _ = model.heads(x)
    expected = 0.3 * model.bias.double().softmax(-1) + 0.7 * by_hand(q, k, scale=1.0)
    torch.testing.assert_close(record[0].attention().double(), expected, atol=1e-6, rtol=0)
    assert sorted(one.use for one in record.account()) == ["captured", "mixed"]
    assert not said


def test_a_sum_over_another_axis_ends_the_trail(x: Tensor) -> None:
    """GroupViT: tokens are assigned to groups, and the next layer attends over the groups."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.groups = nn.Linear(WIDTH, WIDTH)
            self.next = Own(lambda m, q, k, v: soft(q, k) @ v)

        def forward(self, x: Tensor) -> Tensor:
            assign = (self.groups(x[:, :3]) @ x.mT).softmax(-2)
            return self.next(assign / assign.sum(-1, keepdim=True) @ x)

    torch.manual_seed(0)
    model = Grouped()
    record, _ = record_of(model, x, inputs=True)
    assert [(call.name, call.shape) for call in record] == [("next", (B, H, 3, 3))]
    torch.testing.assert_close((record[0].query @ record[0].key.mT).softmax(-1), record[0].attention())


def test_a_router_that_chooses_before_its_softmax(x: Tensor) -> None:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Own(lambda m, q, k, v: (soft(q, k) @ v).transpose(1, 2).flatten(2))
            self.gate = nn.Linear(WIDTH, 5)

        def forward(self, x: Tensor) -> Tensor:  # as in gpt-oss
            best, _ = self.gate(self.attention(x)).topk(2, -1)
            return best.softmax(-1)

    record, _ = record_of(Router(), x)
    assert [one.use for one in record.account()] == ["captured", "router"]


def test_inputs_of_a_map_that_is_used_in_parts(x: Tensor) -> None:
    model = Own(head_loop)
    record, _ = record_of(model, x, inputs=True)
    (call,) = record
    q, k, _ = model.heads(x)
    torch.testing.assert_close(call.query, q)
    torch.testing.assert_close(call.key, k)
    with pytest.raises(GeoattnError, match="value of 'Own' was not found"):
        _ = call.value
    check = record.check()[0]
    assert not math.isnan(check.error)
    assert check.ok


def test_inputs_behind_heads_that_are_mixed_before_the_softmax(x: Tensor) -> None:
    model = Own(lambda m, q, k, v: torch.einsum("bhij,hg->bgij", q @ k.mT, m.mix).softmax(-1) @ v)
    record, said = record_of(model, x, inputs=True)
    q, k, _ = model.heads(x)
    expected = torch.einsum("bhij,hg->bgij", q @ k.mT, model.mix).softmax(-1)
    torch.testing.assert_close(record[0].attention(), expected)
    torch.testing.assert_close(record[0].query, q)
    torch.testing.assert_close(record[0].key, k)
    assert not said


def test_mixed_heads_are_not_called_logits(x: Tensor) -> None:
    model = Own(lambda m, q, k, v: -soft(q, k) @ v)
    _, said = record_of(model, x)
    assert "mixture or a difference" in said[0]


def test_a_module_that_was_silent_at_first(x: Tensor) -> None:
    """Modules without attention lose their hooks after the first pass; what runs in them later is still recorded."""

    class Late(nn.Module):
        on = False

        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x, x) if self.on else x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.late = Own(lambda m, q, k, v: (soft(q, k) @ v).transpose(1, 2).flatten(2)), Late()

        def forward(self, x: Tensor) -> Tensor:
            return self.late(self.first(x))

    model = Model()
    record, said = record_of(model, x)
    assert (record.names, said) == (["first"], [])
    Late.on = True
    record, said = record_of(model, x)
    assert record.names == ["first", "Model"]
    assert "where none ran before" in said[0]
    record, said = record_of(model, x)
    assert (record.names, said) == (["first", "late"], [])
