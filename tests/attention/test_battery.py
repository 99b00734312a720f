"""Attention as other people write it: the map that the model used, or the reason why it is not recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from geoattn._core.errors import GeoattnError
from geoattn.attention import CaptureWarning, capture
from tests.attention.battery import MIXED, PLAIN, WIDTH, B, D, H, N, Own, heads_outside_batch, soft
from tests.attention.blocks import by_hand
from tests.attention.zoo import ARCHITECTURES

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("form", PLAIN)
def test_plain_maps(x: Tensor, form: str) -> None:
    model = PLAIN[form]()
    with capture(model) as record:
        model(x)
    (call,) = record
    q, k, _ = model.heads(x)
    torch.testing.assert_close(call.attention().double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)
    assert [use.use for use in record.account()] == ["captured"]


@pytest.mark.filterwarnings("ignore::geoattn.attention.CaptureWarning")  # rows that are mixtures
@pytest.mark.parametrize("form", MIXED)
def test_maps_changed_after_dropout_are_the_same_in_training(x: Tensor, form: str) -> None:
    model: Any = MIXED[form]()
    with capture(model) as expected:
        model.eval()(x)
    model.p = 0.5
    with capture(model) as record:
        model.train()(x)
    torch.testing.assert_close(record[0].attention(), expected[0].attention())
    with torch.no_grad(), capture(model) as record:
        model(x)
    torch.testing.assert_close(record[0].attention(), expected[0].attention())


def test_as_many_heads_as_samples_with_heads_outside() -> None:
    x = torch.randn(H, N, WIDTH)
    model = Own(heads_outside_batch)
    with capture(model) as record:
        model(x)
    q, k, _ = model.heads(x)
    torch.testing.assert_close(record[0].attention().double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)


def test_single_sequences_and_loops_over_a_batch(x: Tensor) -> None:
    def attend(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = [torch.mm((q[i, 0] @ k[i, 0].T).softmax(-1), v[i, 0]) for i in range(B)]
        return torch.stack(parts)

    model = Own(attend)
    with capture(model) as record:
        model(x)
    q, k, _ = model.heads(x)
    maps = torch.cat([call.attention() for call in record])
    torch.testing.assert_close(maps[:, 0].double(), by_hand(q, k, scale=1.0)[:, 0], atol=1e-6, rtol=0)
    assert [(call.visit, call.part) for call in record] == [(0, 0), (0, 1), (0, 2)]


def test_tensordot_of_one_sequence(x: Tensor) -> None:
    def attend(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.tensordot((q[0, 0] @ k[0, 0].T).softmax(-1), v[0, 0], dims=1)

    model = Own(attend)
    with capture(model) as record:
        model(x)
    q, k, _ = model.heads(x)
    torch.testing.assert_close(
        record[0].attention()[0, 0].double(), by_hand(q, k, scale=1.0)[0, 0], atol=1e-6, rtol=0
    )  # fmt: skip


def test_tied_rows_of_an_alignment() -> None:
    """MSA Transformer: one map for all rows of an alignment, as in fair-esm."""

    class Row(nn.Module):
        num_heads = H

        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

        def heads(self, x: Tensor) -> list[Tensor]:
            return [t.reshape(*x.shape[:3], H, D) for t in self.qkv(x).chunk(3, -1)]

        def forward(self, x: Tensor) -> Tensor:  # rows, columns, batch, width
            q, k, v = self.heads(x)
            weights = torch.einsum("rinhd,rjnhd->hnij", q, k).softmax(-1)
            return torch.einsum("hnij,rjnhd->rinhd", weights, v)

    torch.manual_seed(0)
    model, x = Row(), torch.randn(2, N, B, WIDTH)
    with capture(model) as record:
        model(x)
    q, k, _ = model.heads(x)
    expected = torch.einsum("rinhd,rjnhd->nhij", q, k).softmax(-1)
    torch.testing.assert_close(record[0].attention(), expected)


@pytest.mark.parametrize("name", [name for name, one in ARCHITECTURES.items() if name not in ("gpt-oss",)])
def test_queries_and_keys_of_eager_models(name: str) -> None:
    """The product that is followed is the one of this layer: queries and keys give the map again."""
    architecture = ARCHITECTURES[name]
    model = architecture.build("eager")
    with torch.no_grad(), capture(model, inputs=True) as record:
        model(**architecture.batch("none"))
    for call in record:
        b, h, n, m = call.shape
        assert call.query.shape[:3] == (b, h, n)
        assert call.key.shape[2] == m
        assert call.query.shape[3] == call.key.shape[3]
        if name in ("bert", "roberta", "electra", "vit", "deit", "distilbert", "whisper", "bart", "albert"):
            scores = call.query @ call.key.transpose(-1, -2)
            if call.kind == "self" and "decoder" in call.name:
                scores = scores.masked_fill(torch.ones(n, m).triu(1).bool(), -torch.inf)
            fits = [
                torch.allclose((scores * scale).softmax(-1), call.attention(), atol=1e-5)
                for scale in (1.0, call.query.shape[-1] ** -0.5)
            ]
            assert any(fits)


class Using(nn.Module):
    """A softmax that is no attention between tokens, beside a layer of attention."""

    def __init__(self, use: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.use = Own(lambda m, q, k, v: (soft(q, k) @ v).transpose(1, 2).flatten(2)), use
        self.gate, self.score = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 1)
        self.codes = nn.Parameter(torch.randn(3, WIDTH))
        self.to_qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self, self.first(x))


def linear_keys(m: Any, x: Tensor) -> Tensor:
    q, k, v = (t.reshape(*x.shape[:2], H, D).permute(0, 2, 3, 1) for t in m.to_qkv(x).chunk(3, -1))
    context = torch.einsum("bhdn,bhen->bhde", k.softmax(-1), v)
    return torch.einsum("bhde,bhdn->bhen", context, q.softmax(-2))


def channels(m: Any, x: Tensor) -> Tensor:
    """XCiT: a map between the channels of a head."""
    q, k, v = (t.reshape(*x.shape[:2], H, D).permute(0, 2, 3, 1) for t in m.to_qkv(x).chunk(3, -1))
    weights = (functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1)).softmax(-1)
    return weights @ v


def nystrom(m: Any, x: Tensor) -> Tensor:
    q, k, v = (t.reshape(*x.shape[:2], H, D).transpose(1, 2) for t in m.to_qkv(x).chunk(3, -1))
    ql, kl = (t.reshape(B, H, 2, 3, D).mean(-2) for t in (q, k))
    first, middle, last = soft(q, kl), soft(ql, kl), soft(ql, k)
    inverse = middle.transpose(-1, -2)
    inverse = 0.25 * inverse @ (13 * torch.eye(2) - middle @ inverse)
    return (first @ inverse) @ (last @ v)


def blocks(m: Any, x: Tensor) -> Tensor:
    """Block-sparse: parts of one row meet different values."""
    q, k, v = (t.reshape(*x.shape[:2], H, D).transpose(1, 2) for t in m.to_qkv(x).chunk(3, -1))
    scores = torch.cat([q @ k[:, :, :3].mT, q @ k.mT], -1)
    weights = scores.softmax(-1)
    return weights[..., :3] @ v[:, :, :3] + weights[..., 3:] @ v


def by_broadcasting(m: Any, x: Tensor) -> Tensor:
    q, k, v = (t.reshape(*x.shape[:2], H, D).transpose(1, 2) for t in m.to_qkv(x).chunk(3, -1))
    return (soft(q, k)[..., None] * v[:, :, None]).sum(-2)


USES: dict[str, tuple[Callable[..., Tensor], set[str]]] = {
    "classifier": (lambda m, x: m.gate(x.mean(1)).softmax(-1), {"classifier"}),
    "router": (lambda m, x: m.gate(x).softmax(-1).topk(2, -1)[0], {"router"}),
    "gate": (lambda m, x: m.gate(x).softmax(-1)[..., :1] * x, {"gate"}),
    "experts by bmm": (
        lambda m, x: m.gate(x).softmax(-1).unsqueeze(-2) @ x.unsqueeze(-2).expand(-1, -1, 3, -1),
        {"pooling", "linear attention"},
    ),
    "pooling by bmm": (lambda m, x: m.score(x).transpose(1, 2).softmax(-1) @ x, {"pooling"}),
    "pooling by hand": (lambda m, x: (m.score(x)[..., 0].softmax(-1)[..., None] * x).sum(1), {"gate"}),
    "prototypes by bmm": (
        lambda m, x: torch.bmm(torch.bmm(x, m.codes.T.expand(B, -1, -1)).softmax(-1), m.codes.expand(B, -1, -1)),
        {"prototypes"},
    ),
    "expected embedding": (lambda m, x: m.gate(x).softmax(-1) @ m.codes, {"gate"}),
    "linear attention": (linear_keys, {"linear attention"}),
    "channel attention": (channels, {"channel attention"}),
}
MISSING: dict[str, tuple[Callable[..., Tensor], str]] = {
    "factorised": (nystrom, "a factor of an approximation"),
    "block-sparse": (blocks, "cut into parts"),
    "unexplained": (by_broadcasting, "its product with values was not seen"),
}


@pytest.mark.parametrize("name", USES)
def test_what_is_no_attention_is_named(x: Tensor, name: str) -> None:
    use, expected = USES[name]
    model = Using(use)
    with capture(model) as record:
        model(x)
    assert record.names == ["first"]
    others = {one.use for one in record.account() if one.name != "first"}
    assert others
    assert others <= expected


@pytest.mark.parametrize("name", MISSING)
def test_attention_that_is_missing_is_said(x: Tensor, name: str) -> None:
    use, words = MISSING[name]
    model = Using(use)
    with pytest.warns(CaptureWarning, match=rf"'Using' is not in the record: .*{words}"):
        with capture(model) as record:
            model(x)
    assert record.names == ["first"]
    assert name in {one.use for one in record.account()}


def test_a_record_of_nothing_but_missing_attention_says_why(x: Tensor) -> None:
    class Only(Using):
        def forward(self, x: Tensor) -> Tensor:
            return by_broadcasting(self, x)

    model = Only(by_broadcasting)
    with pytest.warns(CaptureWarning), capture(model) as record:
        model(x)
    with pytest.raises(GeoattnError, match="'Only': it is made from a product of queries and keys"):
        list(record)


def test_a_method_is_no_forward_pass(x: Tensor) -> None:
    class Encoder(nn.Module):
        def encode(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x, x)

    model = Encoder()
    with capture(model) as record:
        model.encode(x)
    with pytest.raises(GeoattnError, match=r"no forward pass began\. Call the module itself"):
        list(record)


class Log(TorchDispatchMode):
    """Counts the softmaxes that really ran."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore::geoattn.attention.CaptureWarning")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_softmax_has_an_account(name: str) -> None:
    architecture = ARCHITECTURES[name]
    model = architecture.build("eager")
    with torch.no_grad(), Log() as log, capture(model) as record:
        model(**architecture.batch("none"))
        ran = log.count
    uses = [one.use for one in record.account()]
    assert len(uses) == ran
    assert uses.count("captured") == len(record)
    assert set(uses) <= {"captured", "router", "classifier", "gate"}


@pytest.mark.parametrize("name", USES)
def test_every_softmax_that_is_no_attention_has_an_account(x: Tensor, name: str) -> None:
    model = Using(USES[name][0])
    with torch.no_grad(), Log() as log, capture(model) as record:
        model(x)
        ran = log.count
    assert len(record.account()) == ran
