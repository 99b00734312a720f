"""The gradient of exact curvature against central differences and one-sided slopes."""

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.curvature.loss import STATISTICS

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

CONVENTIONS = [
    ga.Convention.of("markov"),
    ga.Convention.of("hop"),
    ga.Convention.of("grc-0.5"),
    ga.Convention.of("grc-0.6"),
    ga.Convention(alpha="limit"),
    ga.Convention(alpha=0.3, length="1/w", direction="max"),
    ga.Convention(length="1-w", direction="min", measure="uniform", alpha=0.2),
    ga.Convention(direction="directed"),
    ga.Convention(heads="mean", direction="product"),
    ga.Convention(measure="exponential", exponent=1.5, length="-log w", denominator="length"),
]


def logits_of(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: c.name)
def test_central_differences(convention: ga.Convention) -> None:
    logits = logits_of(2, 6, 6)
    assert torch.autograd.gradcheck(
        lambda x: ga.curvature_loss(x.softmax(-1), convention), (logits,), eps=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("statistic", STATISTICS)
def test_every_statistic(statistic: str) -> None:
    logits = (3 * logits_of(7, 7, seed=1)).detach().requires_grad_()
    loss = lambda x: ga.curvature_loss(x.softmax(-1), statistic=statistic)  # noqa: E731
    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=1e-6)
    values = ga.ollivier_ricci(logits.softmax(-1)).values()
    expected = {"mean": values.mean(), "variance": values.var(), "distance_to_one": (1 - values).mean()}
    expected["negative"] = np.maximum(0, -values).mean()
    assert float(loss(logits).detach()) == pytest.approx(expected[statistic], rel=1e-12)


def test_weights_off_the_simplex_are_renormalised_in_the_gradient_too() -> None:
    attention = logits_of(5, 5).softmax(-1).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: ga.curvature_loss(a), (attention,), eps=2e-7, atol=1e-6)


def test_causal_and_padded() -> None:
    causal = torch.full((6, 6), -torch.inf, dtype=torch.float64).triu(1)
    mask = torch.tensor([True] * 4 + [False] * 2)
    for logits, kwargs in ((logits_of(6, 6), {}), (logits_of(3, 6, 6, seed=2), {"mask": mask})):

        def loss(x: torch.Tensor, kwargs: dict = kwargs) -> torch.Tensor:
            scores = x + causal if not kwargs else x.masked_fill(~mask, -torch.inf)
            return ga.curvature_loss(scores.softmax(-1), **kwargs)

        assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=1e-6)
        (grad,) = torch.autograd.grad(loss(logits), logits)
        assert grad.abs().sum() > 0


def test_batches_are_sums_of_singles() -> None:
    attention = logits_of(2, 3, 8, 8).softmax(-1).detach().requires_grad_()
    (whole,) = torch.autograd.grad(ga.curvature.edge_curvature(attention).sum(), attention)
    for index in np.ndindex(2, 3):
        one = attention[index].detach().requires_grad_()
        (grad,) = torch.autograd.grad(ga.curvature.edge_curvature(one).sum(), one)
        torch.testing.assert_close(whole[index], grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtype_follows_the_input(dtype: torch.dtype) -> None:
    attention = logits_of(9, 9).softmax(-1).to(dtype).detach().requires_grad_()
    loss = ga.curvature_loss(attention)
    loss.backward()
    assert attention.grad is not None
    assert attention.grad.dtype == dtype
    assert loss.dtype == torch.float32
    rows = attention.detach().double()
    exact = (rows / rows.sum(-1, keepdim=True)).requires_grad_()
    ga.curvature_loss(exact).backward()
    assert exact.grad is not None
    torch.testing.assert_close(attention.grad.double(), exact.grad, rtol=0.05, atol=0.02)


def test_sampled_edges_and_determinism() -> None:
    attention = logits_of(4, 12, 12).softmax(-1).detach().requires_grad_()
    grads = [torch.autograd.grad(ga.curvature_loss(attention, edges=10, seed=3), attention)[0] for _ in range(2)]
    assert torch.equal(*grads)
    assert not torch.equal(grads[0], torch.autograd.grad(ga.curvature_loss(attention, edges=10, seed=4), attention)[0])


def test_a_step_along_the_gradient_moves_curvature() -> None:
    logits = logits_of(10, 10, seed=7)
    before = ga.curvature_loss(logits.softmax(-1))
    (grad,) = torch.autograd.grad(before, logits)
    up, down = (ga.curvature_loss((logits + s * grad).softmax(-1)) for s in (0.05, -0.05))
    assert down < before < up


def test_at_ties_the_gradient_lies_between_the_one_sided_slopes() -> None:
    # equal weights: every shortest path and every flow has ties
    weights = torch.ones(6, 6, dtype=torch.float64) - torch.eye(6, dtype=torch.float64)
    weights[0, 1] = weights[1, 0] = 2.0
    weights.requires_grad_()
    convention = ga.Convention(length="w", measure="uniform", alpha=0.2)
    f = lambda w: ga.curvature.edge_curvature(w, convention)[0]  # noqa: E731
    (grad,) = torch.autograd.grad(f(weights), weights)
    assert torch.isfinite(grad).all()
    for seed in range(20):
        direction = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        direction = (direction + direction.T).fill_diagonal_(0)
        h = 1e-6
        with torch.no_grad():
            slopes = [float((f(weights + s * h * direction) - f(weights)) / (s * h)) for s in (1, -1)]
        along = float((grad * direction).sum())
        assert min(slopes) - 1e-5 <= along <= max(slopes) + 1e-5


def test_second_derivatives_and_empty_graphs_are_refused() -> None:
    attention = logits_of(5, 5).softmax(-1).detach().requires_grad_()
    with pytest.raises(ga.GeoattnError, match="second derivative"):
        torch.autograd.grad(ga.curvature_loss(attention), attention, create_graph=True)
    with pytest.raises(ga.GeoattnError, match="no edge has a value"):
        ga.curvature_loss(torch.eye(4, dtype=torch.float64))
    with pytest.raises(ga.GeoattnError, match="torch tensor"):
        ga.curvature_loss(np.eye(4))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ga.GeoattnError, match="statistic"):
        ga.curvature_loss(attention, statistic="median")  # pyright: ignore[reportArgumentType]
