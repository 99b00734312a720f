"""Variances of short maps: the kernel and the steps in torch give the plain formula, value and gradient."""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from geoattn.training import short_variance
from geoattn.training.reused_memory import ReusedMemory
from geoattn.training.short_variance import early_variance, short_variances


def plain(queries: list[Tensor], keys: list[Tensor], scale: float) -> Tensor:
    maps = [(q.double() @ k.double().mT * scale).softmax(-1) for q, k in zip(queries, keys, strict=True)]
    return torch.stack([((a - 1 / a.shape[-1]) ** 2).mean((-1, -2)) for a in maps])


def operands(layers: int, b: int, h: int, n: int, m: int, d: int, spread: float, seed: int = 0) -> list[Tensor]:
    """Queries and keys as models make them: views with rows apart."""
    g = torch.Generator().manual_seed(seed)
    packed = [torch.randn(b, n if i < layers else m, h, d + 3, generator=g) * spread for i in range(2 * layers)]
    return [x[..., :d].transpose(1, 2).requires_grad_() for x in packed]


def with_gradients(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value, *torch.autograd.grad((value * weights).sum(), inputs)]


def assert_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.shape == theirs.shape
        assert float((mine.double() - theirs.double()).detach().abs().max()) <= 1e-6 * float(
            theirs.detach().abs().max()
        )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 21), st.integers(2, 21), st.integers(1, 70),
    st.sampled_from([1e-3, 0.3, 1.0, 3.0]), st.sampled_from([0.125, 1.0, -0.5]), st.booleans(),
)  # fmt: skip
def test_both_ways_equal_the_plain_formula(layers, b, h, n, m, d, spread, scale, threaded):
    inputs = operands(layers, b, h, n, m, d, spread, seed=n * m + d)
    queries, keys = inputs[:layers], inputs[layers:]
    expected = with_gradients(plain(queries, keys, scale), inputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if threaded else 1)
    try:
        with mock.patch.object(short_variance, "_PER_THREAD", 1):  # else so little work stays on one thread
            found = with_gradients(short_variance._Kernel.apply(scale, None, *inputs), inputs)
            assert_close(found, expected)
            assert_close(with_gradients(short_variance._Short.apply(scale, *inputs), inputs), expected)
            if n == m <= 2 * d:
                early = [early_variance(q, k, scale) for q, k in zip(queries, keys, strict=True)]
                again = with_gradients(short_variances(queries, keys, scale, early), inputs)
                assert all(torch.equal(one, two) for one, two in zip(found, again, strict=True))
    finally:
        torch.set_num_threads(threads)


def test_a_second_thread_only_where_it_repays_its_start() -> None:
    with mock.patch.object(torch, "get_num_threads", return_value=4):
        # 17 tokens of L-ViT, 65, and more work than there are threads for
        products = [8 * 64 * n * n * 64 for n in (17, 65, 257)]
        assert [short_variance._threads(count) for count in products] == [1, 4, 4]
        assert short_variance._threads(2 * short_variance._PER_THREAD) == 2


@pytest.mark.parametrize("spread", [1e-4, 1e-3, 30.0])
def test_nearly_uniform_and_nearly_one_hot_rows(spread: float) -> None:
    inputs = operands(2, 3, 2, 17, 17, 64, spread)
    value = short_variance._Kernel.apply(0.125, None, *inputs)
    assert_close(with_gradients(value, inputs), with_gradients(plain(inputs[:2], inputs[2:], 0.125), inputs))


def test_what_all_keys_have_in_common_costs_no_digits() -> None:
    inputs = [x.detach() for x in operands(1, 2, 2, 9, 9, 32, 1.0)]
    inputs[1] = inputs[1] + 64.0
    inputs = [x.requires_grad_() for x in inputs]
    value = short_variance._Kernel.apply(0.125, None, *inputs)
    assert_close(with_gradients(value, inputs), with_gradients(plain(inputs[:1], inputs[1:], 0.125), inputs))


@pytest.mark.parametrize(
    ("change", "made"),
    [
        (lambda x: x, True),
        (lambda x: x.double(), False),
        (lambda x: x.detach(), False),  # no gradient to come
        (lambda x: x.repeat(1, 1, 20, 1), False),  # maps larger than queries and keys
        (lambda x: torch.stack([x, x], -1)[..., 0], False),  # entries of a row apart
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), True),  # heads after tokens
    ],
)
def test_where_the_work_is_done_early(change, made: bool) -> None:
    q, k = (change(x) for x in operands(1, 2, 1, 5, 5, 8, 1.0))
    assert (early_variance(q, k, 0.3) is not None) is made
    with torch.no_grad():
        assert early_variance(q, k, 0.3) is None


def test_functions_of_functions_are_left_alone() -> None:
    q, k = operands(1, 2, 1, 5, 5, 8, 1.0)
    found = []
    torch.func.grad(lambda x: found.append(early_variance(x, k, 0.3)) or x.sum())(q)
    assert found == [None]


def test_slopes_made_early_serve_two_backward_passes() -> None:
    inputs = operands(1, 2, 1, 5, 5, 8, 1.0)
    value = short_variances(inputs[:1], inputs[1:], 0.3, [early_variance(*inputs, 0.3)]).sum()
    first = torch.autograd.grad(value, inputs, retain_graph=True)
    second = torch.autograd.grad(value, inputs)
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(value, inputs)


def test_slopes_go_with_the_graph() -> None:
    q, k = operands(1, 2, 1, 5, 5, 8, 1.0)
    memory = ReusedMemory()
    with mock.patch.object(short_variance, "_IN_HEAP", 0), mock.patch.object(short_variance, "_memory", memory):
        value = short_variances([q], [k], 0.3, [early_variance(q, k, 0.3)])
        assert [block[1]() is None for block in memory._blocks] == [False]
        value.sum().backward(retain_graph=True)
        assert memory._blocks[0][1]() is not None
        value.sum().backward()
        assert memory._blocks[0][1]() is None
        assert bool(value.isfinite().all())


def test_a_script_may_end_with_a_loss_in_hand() -> None:
    """Nothing is said of slopes that live to the end."""
    script = (
        "import torch; from geoattn.training.short_variance import *;"
        "q = torch.randn(2, 1, 5, 8, requires_grad=True);"
        "loss = short_variances([q], [q], 1.0, [early_variance(q, q, 1.0)]).sum()"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_stays_none(bad: float) -> None:
    q, k = (x.detach().clone() for x in operands(1, 2, 1, 5, 5, 8, 1.0))
    q[0, 0, 2, 3] = bad
    value = short_variances([q], [k], 1.0)
    assert bool(value[0, 0, 0].isnan()) == bool(plain([q], [k], 1.0)[0, 0, 0].isnan())
    assert bool(value[0, 1].isfinite().all())


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (lambda x: x, True),
        (lambda x: x.double(), False),
        (lambda x: x.bfloat16(), False),
        (lambda x: x.repeat(1, 1, 20, 1), False),  # maps larger than queries and keys
        (lambda x: torch.stack([x, x], -1)[..., 0], False),  # entries of a row apart
    ],
)
def test_where_the_kernel_is_used(change, fits: bool) -> None:
    q, k = (change(x.detach()) for x in operands(1, 2, 1, 5, 5, 8, 1.0))
    assert short_variance._kernel_fits([q], [k]) is fits
    expected = plain([q], [k], 0.3)
    tolerance = 1e-2 if q.dtype == torch.bfloat16 else 1e-6
    assert torch.allclose(short_variances([q], [k], 0.3).double(), expected, rtol=tolerance, atol=0)


def test_the_default_dtype_of_torch_does_not_matter() -> None:
    inputs = operands(1, 2, 1, 5, 5, 8, 1.0)
    expected = with_gradients(short_variances(inputs[:1], inputs[1:], 0.3), inputs)
    torch.set_default_dtype(torch.float64)
    try:
        found = with_gradients(short_variances(inputs[:1], inputs[1:], 0.3), inputs)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_queries_changed_before_the_backward_pass_are_refused() -> None:
    inputs = [x.detach().clone().requires_grad_() for x in operands(1, 2, 1, 5, 5, 8, 1.0)]
    q = inputs[0] * 1.0
    value = short_variances([q], [inputs[1]], 1.0)
    q.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_a_tensor_that_is_only_marked_as_negated_is_read_right() -> None:
    inputs = operands(1, 2, 1, 5, 5, 8, 1.0)
    lazy = torch._neg_view(inputs[0].detach())  # as of the imaginary part of a conjugate, but with dense rows
    assert lazy.is_neg()
    assert lazy.stride(-1) == 1
    value = short_variances([lazy], [inputs[1].detach()], 0.5)
    torch.testing.assert_close(
        value.double(), plain([lazy.resolve_neg()], [inputs[1]], 0.5).detach(), rtol=1e-6, atol=0
    )
