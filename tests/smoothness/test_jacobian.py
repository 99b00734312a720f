from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import geoattn as ga
from geoattn.smoothness import row_kernel, tile_kernel
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.jacobian import Jacobian
from geoattn.smoothness.norms import Norm
from tests.smoothness.cases import KINDS, Case, draw

F64 = torch.float64


def jacobian_of(case: Case, dtype: torch.dtype = F64) -> Jacobian:
    a = dict(case.arguments)
    read = {name: torch.as_tensor(a.pop(name))[None] for name in ("mask", "context_mask") if name in a}
    context = torch.as_tensor(a.pop("context"))[None].to(dtype) if "context" in a else None
    wrt = a.pop("wrt", "both")
    f = AttentionMap.of(a.pop("A"), a.pop("V", None), a.pop("W", None), **a)
    tokens = torch.as_tensor(case.tokens)[None].to(dtype)
    if "mask" in read:
        tokens = tokens.masked_fill(~read["mask"][..., None], 0.0)
    return Jacobian(f, tokens, context, wrt=wrt, **read)


def built(j: Jacobian) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrix, once from products and once from transposed products, rows and columns of padding left out."""
    real_in = j.real_inputs()
    size = j.value[0].numel()
    dtype = j.value.dtype
    forward = j.apply(torch.eye(j.in_size, dtype=dtype)[None])[0].T
    backward = j.adjoint(torch.eye(size, dtype=dtype)[None])[0]
    columns = torch.ones(j.in_size, dtype=torch.bool) if real_in is None else real_in[0]
    rows = torch.ones(j.n, dtype=torch.bool) if j.mask is None else j.mask[0]
    rows = rows[:, None].expand(-1, size // j.n).flatten()
    for matrix in (forward, backward):  # padding is neither moved nor moves
        assert not matrix[~rows].any()
        assert not matrix[:, ~columns].any()
    return forward[rows][:, columns], backward[rows][:, columns]


@pytest.mark.parametrize("kind", KINDS)
def test_both_products_are_those_of_the_dense_jacobian(kind):
    for seed in range(8):
        case = draw(seed * 100, kind, largest=120)
        expected = case.dense()
        scale = max(1.0, float(expected.abs().max()))
        for ours in built(jacobian_of(case)):
            torch.testing.assert_close(ours, expected, rtol=0, atol=2e-10 * scale)


def products(j: Jacobian, seed: int = 0) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    move = torch.randn(1, 2, j.in_size, generator=g, dtype=F64).to(j.value)
    cotangent = torch.randn(1, 2, j.value[0].numel(), generator=g, dtype=F64).to(j.value)
    return [j.value, j.apply(move), j.adjoint(cotangent)]


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_rows_and_tiles_change_nothing(kind, monkeypatch):
    monkeypatch.setattr(row_kernel, "_LEAST_ROWS", 2)
    monkeypatch.setattr(tile_kernel, "_TILE", (7, 5))
    for seed in range(4):
        case = draw(seed * 100 + 1, kind, largest=120, logits=2.0)
        whole = products(jacobian_of(case))
        with monkeypatch.context() as patch:
            patch.setattr(row_kernel, "_BLOCK_BYTES", 64)
            blocks = products(jacobian_of(case))
        tiles = products(jacobian_of(case, torch.float32))
        for a, b, c in zip(whole, blocks, tiles, strict=True):
            scale = float(a.abs().max())
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11 * scale)
            torch.testing.assert_close(a, c.double(), rtol=0, atol=1e-4 * scale)


def test_value_is_the_map():
    for seed in range(30):
        case = draw(seed, largest=150)
        j = jacobian_of(case)
        a = {
            k: v
            for k, v in case.arguments.items()
            if k not in ("A", "V", "W", "mask", "context_mask", "context", "wrt")
        }
        f = AttentionMap.of(case.arguments["A"], case.arguments.get("V"), case.arguments.get("W"), **a)
        context = case.arguments.get("context")
        tokens = torch.as_tensor(case.tokens)
        if j.mask is not None:
            tokens = tokens.masked_fill(~j.mask[0, :, None], 0.0)
        plain = f(
            tokens,
            None if context is None else torch.as_tensor(context),
            None if j.mask is None else j.mask[0],
            None if context is None or j.key_mask is None else j.key_mask[0],
        )
        scale = max(1e-12, float(plain.abs().max()))
        torch.testing.assert_close(j.value[0], plain, rtol=0, atol=1e-10 * scale)


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_the_products_are_transposed_to_each_other(seed, kind):
    j = jacobian_of(draw(seed, kind, largest=200))
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 3, j.in_size, generator=g, dtype=F64)
    y = torch.randn(1, 3, j.value[0].numel(), generator=g, dtype=F64)
    image, back = j.apply(x), j.adjoint(y)
    assert torch.isfinite(image).all()
    one, two = (image * y).sum(-1), (x * back).sum(-1)
    scale = image.norm(dim=-1) * y.norm(dim=-1) + x.norm(dim=-1) * back.norm(dim=-1)
    assert bool(((one - two).abs() <= 1e-10 * scale + j.rounding() * x.norm(dim=-1) * y.norm(dim=-1)).all())


def test_samples_of_a_batch_do_not_meet():
    rng = np.random.default_rng(0)
    tokens = torch.as_tensor(rng.standard_normal((3, 6, 4)))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [False, True, True, False, True, False]])
    tokens = tokens.masked_fill(~mask[..., None], 0.0)
    f = AttentionMap.of(rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 3, 4)), causal=True)
    move = torch.as_tensor(rng.standard_normal((3, 2, 24)))
    g = torch.as_tensor(rng.standard_normal((3, 2, 18)))
    whole = Jacobian(f, tokens, mask=mask)
    for k in range(3):
        alone = Jacobian(f, tokens[k : k + 1], mask=mask[k : k + 1])
        torch.testing.assert_close(whole.apply(move)[k], alone.apply(move[k : k + 1])[0])
        torch.testing.assert_close(whole.adjoint(g)[k], alone.adjoint(g[k : k + 1])[0])
        keep = mask[k]  # and padding is not there
        short = Jacobian(f, tokens[k, keep][None])
        cut = move[k].view(2, 6, 4)[:, keep].reshape(1, 2, -1)
        expected = whole.apply(move)[k].view(2, 6, 3)[:, keep].reshape(2, -1)
        torch.testing.assert_close(short.apply(cut)[0], expected)


def test_rows_that_attend_to_one_token_cancel_exactly():
    """x_j huge: without care the derivative through the weights is rounding times the square of the radius."""
    tokens = torch.eye(4, dtype=F64)[None] * 1e5
    j = Jacobian(AttentionMap.of(torch.eye(4, dtype=F64)), tokens)
    torch.testing.assert_close(built(j)[0], torch.eye(16, dtype=F64), rtol=0, atol=0)
    torch.testing.assert_close(built(j)[1], torch.eye(16, dtype=F64), rtol=0, atol=0)


def test_norms_are_those_of_torch():
    g = torch.Generator().manual_seed(0)
    x, gain, shift = (torch.randn(*s, generator=g, dtype=F64) for s in ((3, 5), (5,), (5,)))
    layer = torch.nn.functional.layer_norm(x, (5,), gain, shift, eps=1e-3)
    torch.testing.assert_close(Norm("layer", gain, shift, 1e-3)(x), layer)
    torch.testing.assert_close(Norm("rms", gain, eps=1e-3)(x), torch.nn.functional.rms_norm(x, (5,), gain, eps=1e-3))


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_gain_shift_and_residual(kind, place):
    rng = np.random.default_rng(1)
    norm = Norm(kind, rng.standard_normal(4), rng.standard_normal(4), 1e-2)
    arguments = {
        "A": rng.standard_normal((2, 4, 4)), "V": rng.standard_normal((2, 4, 4)), "norm": norm,
        "norm_place": place, "residual": True, "causal": True,
    }  # fmt: skip
    case = Case(rng.standard_normal((5, 4)), arguments)
    for ours in built(jacobian_of(case)):
        torch.testing.assert_close(ours, case.dense(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("tokens", "arguments", "words"),
    [
        (np.zeros((3, 4)), {"A": np.eye(5)}, "width 5"),
        (np.zeros((3, 4)), {"A": np.eye(4), "V": np.ones((2, 3))}, "V must have 4 columns"),
        (np.zeros((3, 4)), {"A": np.eye(4), "V": np.eye(4), "W": np.ones((2, 3))}, "W must have 4 columns"),
        (np.zeros((3, 4)), {"A": np.ones((2, 4, 4)), "V": np.ones((3, 4, 4))}, "same number of heads"),
        (np.zeros((3, 4)), {"A": (np.ones((2, 4)), np.ones((3, 4)))}, "same number of rows"),
        (np.zeros((3, 4)), {"A": (np.ones((2, 4)),) * 3}, "pair"),
        (np.zeros((3, 4)), {"A": np.full((4, 4), np.nan)}, "A must be finite"),
        (np.zeros((3, 4)), {"A": np.ones(4)}, "A must have shape"),
        (np.zeros((3, 4)), {"A": np.eye(4), "bias": np.ones(3)}, "bias"),
        (np.zeros((3, 4)), {"A": np.eye(4), "V": np.ones((3, 4)), "residual": True}, "residual needs"),
        (np.zeros((3, 4)), {"A": np.eye(4), "norm": Norm("layer", np.ones(3))}, "gain of the norm"),
        (np.zeros((3, 4)), {"A": np.eye(4), "norm": Norm("rms", eps=0.0)}, "no derivative"),
        (np.full((3, 4), 1e7), {"A": np.eye(4)}, "logits may reach"),
        (np.full((3, 4), 1e200), {"A": np.eye(4)}, "logits may reach"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(tokens, arguments, words):
    with pytest.raises(ga.GeoattnError, match=words):
        jacobian_of(Case(tokens, arguments))


def test_causal_cross_attention_is_refused():
    f = AttentionMap.of(np.eye(2), causal=True)
    with pytest.raises(ga.GeoattnError, match="one sequence"):
        Jacobian(f, torch.zeros(1, 2, 2, dtype=F64), torch.zeros(1, 3, 2, dtype=F64))
    with pytest.raises(ga.GeoattnError, match="context of width 2"):
        Jacobian(AttentionMap.of(np.eye(2)), torch.zeros(1, 2, 2, dtype=F64), torch.zeros(1, 3, 4, dtype=F64))
