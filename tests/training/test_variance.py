"""Variance of attention: both routes against the plain formula, and the memory of the streamed one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from geoattn.training.variance_from_maps import attention_variance, call_variance
from geoattn.training.variance_streamed import streamed_variance

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-10}


def streamed_tolerance(dtype: torch.dtype, spread: float) -> tuple[float, float]:
    """Relative error of value and gradient that the docstring states, for logits of this size."""
    if dtype == torch.float64:
        return 1e-10, 1e-9
    return (2e-6 if spread > 0.05 else 2e-8 / spread), (1e-6 * max(1.0, spread) + 1e-7 / spread)


def plain(q: Tensor, k: Tensor, entries: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Sum over entries of (A - mean)^2 / N, one map after the other, in float64."""
    q, k = q.double(), k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    logits = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        logits = logits + bias.double()
    maps = logits.masked_fill(~entries, -torch.inf)
    maps = torch.where(entries.any(-1, keepdim=True), maps, torch.zeros(())).softmax(-1)
    values = []
    for sample, allowed in zip(maps.flatten(0, 1), entries.flatten(0, 1), strict=True):
        x = sample[allowed]
        values.append(((x - x.mean()) ** 2).mean())
    return torch.stack(values).reshape(q.shape[:2])


def gradients(value: Tensor, *inputs: Tensor) -> list[Tensor]:
    weights = torch.linspace(1.0, 2.0, value.numel(), dtype=value.dtype).reshape(value.shape)
    return list(torch.autograd.grad((value * weights).sum(), inputs))


def assert_same(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Relative to the largest value of the tensor."""
    actual, expected = actual.detach().double(), expected.detach().double()
    assert float((actual - expected).abs().max()) <= tolerance * float(expected.abs().max())


def case(kind: str, n: int, m: int) -> dict[str, Any]:
    """Arguments of streamed_variance, and the entries they leave."""
    entries = torch.ones(2, 4, n, m, dtype=torch.bool)
    rows = torch.ones(2, n, dtype=torch.bool)
    keys = torch.ones(2, m, dtype=torch.bool)
    given: dict[str, Any] = {}
    if "causal" in kind:
        entries &= torch.ones(n, m, dtype=torch.bool).tril()
        given["causal"] = True
    if "right" in kind or "left" in kind:
        hidden = slice(m - 3, None) if "right" in kind else slice(0, 3)
        rows[1, hidden] = keys[1, hidden] = False
        entries &= (rows[:, None, :, None] & keys[:, None, None]).expand_as(entries)
        given.update(valid=rows, valid_keys=keys, mask=keys[:, None, None])
    if "window" in kind:
        band = (torch.arange(n)[:, None] - torch.arange(m)).abs() < 3
        entries &= band
        given["mask"] = band
    if "bias" in kind:
        given["bias"] = torch.linspace(-1, 1, n * m).reshape(n, m)
        given["mask"] = given["bias"]
    return {"entries": entries, **given}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 4.0, 30.0, 0.1, 1e-3])  # nearly one-hot, nearly uniform
@pytest.mark.parametrize(
    "kind", ["full", "causal", "right", "left", "causal-left", "window", "bias", "causal-right", "grouped"]
)
def test_streamed_equals_autograd_on_the_plain_formula(kind: str, spread: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    n = 13
    q = (spread * torch.randn(2, 4, n, 8, generator=generator)).to(dtype).requires_grad_()
    heads = 2 if kind == "grouped" else 4
    k = torch.randn(2, heads, n, 8, generator=generator).to(dtype).requires_grad_()
    given = case(kind, n, n)
    entries, bias = given.pop("entries"), given.pop("bias", None)
    if bias is not None:
        bias = given["mask"] = spread * bias
    actual, expected = streamed_variance(q, k, **given), plain(q, k, entries, bias)
    assert actual.dtype == dtype
    value, slope = streamed_tolerance(dtype, spread)
    torch.testing.assert_close(actual.double(), expected, rtol=value, atol=0)
    for a, e in zip(gradients(actual, q, k), gradients(expected, q, k), strict=True):
        assert_same(a, e, slope)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 4.0, 1e-3])
@pytest.mark.parametrize("kind", ["full", "causal", "right", "left", "window"])
def test_maps_equal_autograd_on_the_plain_formula(kind: str, spread: float, dtype: torch.dtype) -> None:
    n = 11
    entries = case(kind, n, n)["entries"]
    logits = spread * torch.randn(2, 4, n, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    some = entries.any(-1, keepdim=True)
    maps = torch.where(some, logits.masked_fill(~entries, -torch.inf), torch.zeros(())).softmax(-1)
    maps = maps.masked_fill(~entries, 0.0).to(dtype).requires_grad_()
    actual = attention_variance(maps, None if kind == "full" else entries)
    values = [x.double()[e] for x, e in zip(maps.flatten(0, 1), entries.flatten(0, 1), strict=True)]
    expected = torch.stack([((x - x.mean()) ** 2).mean() for x in values]).reshape(2, 4)
    torch.testing.assert_close(actual.double(), expected, rtol=TOLERANCE[dtype], atol=0)
    assert_same(*gradients(actual, maps), *gradients(expected, maps), TOLERANCE[dtype])


def test_a_common_offset_of_the_keys_costs_no_digits() -> None:
    """Logits of 30 that differ by 0.01: in float32 sums the variance would be off by several percent."""
    generator = torch.Generator().manual_seed(0)
    q = 1 + 0.01 * torch.randn(1, 1, 20, 16, generator=generator)
    k = 8 + 0.01 * torch.randn(1, 1, 20, 16, generator=generator)
    expected = plain(q, k, torch.ones(1, 1, 20, 20, dtype=torch.bool))
    torch.testing.assert_close(streamed_variance(q, k).double(), expected, rtol=1e-6, atol=0)


def test_closed_forms() -> None:
    n = 9
    q = k = 1e4 * torch.eye(n)[None, None]  # one-hot rows
    torch.testing.assert_close(streamed_variance(q, k), torch.tensor([[(n - 1) / n**2]]))
    assert float(streamed_variance(torch.zeros(1, 1, n, 4), k[..., :4])) == 0.0
    one = streamed_variance(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4))
    assert float(one) == 0.0
    # Causal and uniform: rows 1/i, i entries each; N = n (n + 1) / 2, mean 2 / (n + 1).
    causal = streamed_variance(torch.zeros(1, 1, n, 4), torch.zeros(1, 1, n, 4), causal=True)
    total, harmonic = n * (n + 1) / 2, sum(1 / i for i in range(1, n + 1))
    torch.testing.assert_close(causal, torch.tensor([[harmonic / total - (n / total) ** 2]]))


def test_several_blocks_are_one_map(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = torch.randn(2, 3, 40, 8, requires_grad=True), torch.randn(2, 3, 40, 8, requires_grad=True)
    whole = streamed_variance(q, k, causal=True)
    expected = gradients(whole, q, k)
    monkeypatch.setattr("geoattn.training.variance_streamed._BLOCK", 3 * 40 * 7)
    pieces = streamed_variance(q, k, causal=True)
    torch.testing.assert_close(pieces, whole)
    for a, e in zip(gradients(pieces, q, k), expected, strict=True):
        torch.testing.assert_close(a, e)


def test_a_map_without_entries_has_no_variance() -> None:
    q = torch.randn(2, 1, 4, 8, requires_grad=True)
    valid = torch.tensor([[True] * 4, [False] * 4])
    variance = streamed_variance(q, q, valid=valid, mask=valid[:, None, None])
    assert variance.isnan().tolist() == [[False], [True]]
    (gradient,) = torch.autograd.grad(variance[0].sum(), q)
    assert gradient.isfinite().all()
    assert not gradient[1].any()


def test_sixteen_bit_queries() -> None:
    q, k = torch.randn(1, 2, 9, 8).bfloat16(), torch.randn(1, 2, 9, 8).bfloat16()
    expected = plain(q, k, torch.ones(1, 2, 9, 9, dtype=torch.bool))
    actual = streamed_variance(q.requires_grad_(), k)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=0)
    assert torch.autograd.grad(actual.sum(), q)[0].dtype == torch.bfloat16


def test_no_second_derivative() -> None:
    q = torch.randn(1, 1, 4, 8, requires_grad=True)
    with pytest.raises(GeoattnError, match="no second derivative"):
        torch.autograd.grad(streamed_variance(q, q).sum(), q, create_graph=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention_variance([[1.0]]), "float tensor"),
        (lambda: attention_variance(torch.eye(3).long()), "float tensor"),
        (lambda: attention_variance(torch.eye(3), torch.ones(3, 3)), "valid must be a boolean tensor"),
        (lambda: attention_variance(torch.eye(3), torch.ones(2, 2).bool()), "broadcast"),
        (lambda: streamed_variance(torch.ones(1, 3, 4, 5), torch.ones(1, 2, 4, 5)), "do not fit"),
        (lambda: streamed_variance(torch.ones(1, 1, 2, 5), torch.ones(1, 1, 2, 5), mask=[1]), "mask must be"),
        (
            lambda: streamed_variance(
                torch.ones(1, 1, 2, 5), torch.ones(1, 1, 2, 5), valid=torch.tensor([[True, False]])
            ),
            "give the mask too",
        ),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(GeoattnError, match=message):
        call()


class Layer(nn.Module):
    """Attention three ways: fused, from a softmax, or with a trained bias on the logits."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.num_heads = way, 2
        self.qkv = nn.Linear(8, 24)
        self.bias = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.way == "softmax":
            scores = (q @ k.mT / 2).masked_fill(~allowed, -torch.inf)
            return scores.softmax(-1) @ v
        mask = self.bias.masked_fill(~allowed, -torch.inf) if self.way == "bias" else allowed
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def test_calls_of_models_that_differ_only_in_the_kernel() -> None:
    torch.manual_seed(0)
    fused, by_hand = Layer("fused").double(), Layer("softmax").double()
    by_hand.load_state_dict(fused.state_dict())
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    valid = torch.ones(3, 1, 1, 6, dtype=torch.bool)
    valid[1, ..., 4:] = False
    allowed = torch.ones(6, 6, dtype=torch.bool).tril() & valid
    results = []
    for model in (fused, by_hand):
        with capture(model) as record:
            model(x, allowed)
        value = call_variance(record[0])
        results.append([value, *torch.autograd.grad(value.sum(), list(model.qkv.parameters()))])
    assert record[0].route == "softmax"
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)


def test_a_mask_of_minus_100_is_one_mask_for_both_kernels() -> None:
    """As in Swin, with a relative position bias in the same tensor."""

    class Windows(nn.Module):
        def __init__(self, fused: bool) -> None:
            super().__init__()
            self.fused = fused

        def forward(self, q: Tensor, bias: Tensor) -> Tensor:
            if self.fused:
                return functional.scaled_dot_product_attention(q, q, q, attn_mask=bias)
            return (q @ q.mT / q.shape[-1] ** 0.5 + bias).softmax(-1) @ q

    q, bias = torch.randn(2, 3, 8, 4), 0.5 * torch.randn(1, 3, 8, 8)
    window = torch.arange(8) // 4
    bias = bias.masked_fill(window[:, None] != window, -100.0)
    found = []
    for fused in (True, False):
        model = Windows(fused)
        with capture(model) as record:
            model(q, bias)
        found.append(call_variance(record[0]))
    torch.testing.assert_close(found[0], found[1])


def test_a_trained_bias_gets_its_gradient() -> None:
    torch.manual_seed(0)
    model = Layer("bias").double()
    x, allowed = torch.randn(2, 6, 8, dtype=torch.float64), torch.ones(6, 6, dtype=torch.bool).tril()
    with capture(model) as record:
        model(x, allowed)
    value = call_variance(record[0]).sum()
    q, k, _ = model.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    expected = plain(q, k, allowed.expand(2, 2, 6, 6), model.bias).sum()
    parameters = [model.bias, model.qkv.weight]
    for a, e in zip(torch.autograd.grad(value, parameters), torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(a, e)


def test_a_token_mask_that_the_model_does_not_obey() -> None:
    """Rows then do not sum to one over the tokens; the map says so, and the plain formula holds."""

    class Careless(Layer):
        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            return super().forward(x, torch.ones(6, 6, dtype=torch.bool))

    model = Careless("fused")
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    with pytest.warns(UserWarning, match="not obeyed"), capture(model) as record:
        model(torch.randn(2, 6, 8), attention_mask=mask)
    maps = record[0].attention()[0, :, :4, :4]
    torch.testing.assert_close(call_variance(record[0])[0], maps.flatten(1).var(-1, correction=0))


_MEMORY = """
import resource, sys, torch
from geoattn.training.variance_streamed import streamed_variance
n, heads = int(sys.argv[1]), int(sys.argv[2])
q = torch.randn(1, heads, n, 64, requires_grad=True)
k = torch.randn(1, heads, n, 64, requires_grad=True)
streamed_variance(q, k, causal=True).sum().backward()
assert q.grad.isfinite().all() and k.grad.abs().max() > 0
sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def peak_megabytes(n: int, heads: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(n), str(heads)], capture_output=True, text=True, check=True, timeout=280
    )
    return float(done.stdout)


def test_memory_without_maps() -> None:
    """One head of 3,072 tokens: the map and its gradient alone would be 151 MB in float64."""
    assert peak_megabytes(3072, 1) < peak_megabytes(16, 1) + 90


@pytest.mark.slow
def test_memory_of_long_sequences() -> None:
    assert peak_megabytes(8192, 8) < 600


class _Products(TorchDispatchMode):
    """Counts the multiplications of all batched matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "bmm" in str(func) or "mm" in str(func):
            a, b = [x for x in args if isinstance(x, torch.Tensor)][-2:]
            self.count += a.shape[0] * a.shape[1] * a.shape[2] * b.shape[2]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("causal", "most"), [(False, 3.0), (True, 2.0)])
def test_forward_and_backward_are_at_most_three_products(causal: bool, most: float) -> None:
    """Of the size of queries times keys; the later keys of a causal map are not computed."""
    b, h, n, d = 2, 12, 512, 16
    query, key = (torch.randn(b, n, h, d).transpose(1, 2).requires_grad_() for _ in range(2))
    with _Products() as products:
        streamed_variance(query, key, causal=causal).mean().backward()
    assert 0 < products.count <= most * b * h * n * n * d
