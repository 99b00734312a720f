"""The variance of short maps in the native kernel: value and gradient of the formula in float64, and its limits."""

import pytest
import torch

from geoattn.training import attention_variance, streamed_variance
from geoattn.training.variance_short import is_short, squares_of_short_maps


def plain(q, k, scale):
    """Variance of each map, from the map itself."""
    return attention_variance((scale * q @ k.mT).softmax(-1))


def apart(found, true):
    return float((found.double() - true).norm() / true.norm().clamp_min(1e-300))


@pytest.mark.parametrize("spread", [0.2, 1.0, 6.0])
@pytest.mark.parametrize(
    ("b", "h", "n", "d"), [(64, 1, 17, 64), (3, 2, 2, 16), (2, 3, 16, 48), (1, 4, 32, 32), (5, 1, 7, 80)]
)
def test_value_and_gradient_are_those_of_the_map(b, h, n, d, spread):
    torch.manual_seed(0)
    q, k = (spread * torch.randn(2, b, h, n, d)).unbind()
    assert is_short(q, k)
    wide = [t.double().requires_grad_() for t in (q, k)]
    narrow = [t.clone().requires_grad_() for t in (q, k)]
    weight = torch.rand(b, h)
    true, found = plain(*wide, 0.3), streamed_variance(*narrow, scale=0.3)
    (true * weight.double()).sum().backward()
    (found * weight).sum().backward()
    size = float((0.3 * wide[0] @ wide[1].mT).detach().abs().max())
    assert apart(found.detach(), true.detach()) < 1e-5
    for one, two in zip(narrow, wide, strict=True):
        error = (one.grad.double() - two.grad).abs().max() / two.grad.abs().max()
        assert float(error) < 2e-6 * max(1.0, size)


def test_one_token_has_neither_variance_nor_gradient():
    q, k = (torch.randn(2, 1, 1, 16).requires_grad_() for _ in range(2))
    value = streamed_variance(q, k)
    value.sum().backward()
    assert value.tolist() == [[0.0], [0.0]]
    assert not q.grad.any()
    assert not k.grad.any()


def test_what_all_keys_have_in_common_costs_no_digits():
    torch.manual_seed(1)
    q, k = torch.randn(2, 2, 1, 17, 64).unbind()
    moved = k + 50 * torch.randn(64)
    assert apart(streamed_variance(q, moved), plain(q.double(), moved.double(), 0.125)) < 1e-4


def test_views_give_what_their_copies_give():
    torch.manual_seed(2)
    q, k = torch.randn(2, 4, 17, 3, 32).transpose(2, 3).unbind()
    assert not q.is_contiguous()
    assert torch.equal(streamed_variance(q, k), streamed_variance(q.contiguous(), k.contiguous()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 1])
def test_a_map_of_what_is_not_finite_is_nan_and_its_neighbour_is_not(bad, place):
    torch.manual_seed(3)
    pair = torch.randn(2, 2, 1, 17, 64)
    pair[place, 1, 0, 3, 5] = bad
    q, k = (t.clone().requires_grad_() for t in pair)
    value = streamed_variance(q, k)
    value.sum().backward()
    assert value.isnan().squeeze(1).tolist() == [False, True]
    assert q.grad[0].isfinite().all()
    assert q.grad[1].isnan().any()


def test_without_gradients_the_same_squares():
    q, k = torch.randn(2, 3, 2, 9, 16).unbind()
    with_them, without = (squares_of_short_maps(q, k, 0.25, gradients) for gradients in (True, False))
    assert torch.equal(with_them[0], without[0])
    assert without[1:] == (None, None)


@pytest.mark.parametrize(
    ("q", "k"),
    [
        (torch.zeros(1, 1, 33, 16), torch.zeros(1, 1, 33, 16)),  # long
        (torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 4, 8)),  # narrow
        (torch.zeros(1, 2, 4, 16), torch.zeros(1, 1, 4, 16)),  # heads that share keys
        (torch.zeros(1, 1, 4, 16), torch.zeros(1, 1, 5, 16)),  # more keys
        (torch.zeros(1, 1, 4, 16).double(), torch.zeros(1, 1, 4, 16).double()),
        (torch.zeros(0, 1, 4, 16), torch.zeros(0, 1, 4, 16)),
    ],
)
def test_other_maps_are_left_to_torch(q, k):
    assert not is_short(q, k)
    assert float(streamed_variance(q, k).sum()) == 0.0
