"""The gradient of exact curvature against central differences and one-sided slopes."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import geoattn as ga
from geoattn import Convention, Status
from geoattn.curvature.loss import STATISTICS
from tests.graphs import draw

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
    (whole,) = torch.autograd.grad(ga.edge_curvature(attention).sum(), attention)
    for index in np.ndindex(2, 3):
        one = attention[index].detach().requires_grad_()
        (grad,) = torch.autograd.grad(ga.edge_curvature(one).sum(), one)
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
    f = lambda w: ga.edge_curvature(w, convention)[0]  # noqa: E731
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


# ---- every convention, statistic and kind of input


PRESETS = ("markov", "hop", "grc-0.5", "grc-0.6")
DIRECTED = Convention(direction="directed")
KINDS = ("full", "causal", "zeros", "padded", "duplicates")


def scores_of(kind: str, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of a kind from free logits, and its mask."""
    n = logits.shape[-1]
    barred = torch.zeros(n, n, dtype=torch.bool)
    mask = None
    if kind == "causal":
        barred = torch.ones(n, n, dtype=torch.bool).triu(1)
    elif kind == "zeros":
        barred = torch.from_numpy(np.random.default_rng(3).random((n, n)) < 0.35) & ~torch.eye(n, dtype=torch.bool)
    elif kind == "padded":
        mask = torch.arange(n) % 3 != 1
        barred = (~mask).expand(n, n)
    elif kind == "duplicates":  # two tokens with the same row and the same column
        logits = torch.cat([logits[..., :-1, :], logits[..., :1, :]], dim=-2)
        logits = torch.cat([logits[..., :-1], logits[..., :1]], dim=-1)
    return logits.masked_fill(barred, -torch.inf).softmax(-1), mask


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("convention", [*PRESETS, DIRECTED, Convention(alpha="limit")], ids=str)
def test_central_differences_everywhere(convention, kind, statistic):
    logits = (1.5 * logits_of(7, 7, seed=11)).detach().requires_grad_()

    def loss(x: torch.Tensor) -> torch.Tensor:
        attention, mask = scores_of(kind, x)
        return ga.curvature_loss(attention, convention, statistic=statistic, mask=mask)

    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("direction", ["mean", "max", "min", "product", "directed"])
@pytest.mark.parametrize("length", ["w", "1/w", "-log w", "1-w", "hop"])
@pytest.mark.parametrize("measure", ["markov", "exponential", "uniform"])
def test_every_part_of_a_convention(direction, length, measure):
    for alpha, denominator in ((0.0, "distance"), (0.3, "length"), ("limit", "distance")):
        convention = Convention(
            direction=direction, length=length, measure=measure, alpha=alpha, denominator=denominator, exponent=1.7
        )
        logits = logits_of(5, 5, seed=5)
        assert torch.autograd.gradcheck(
            lambda x, c=convention: ga.edge_curvature(x.softmax(-1), c), (logits,), eps=1e-6, atol=5e-6, rtol=1e-4
        )


def test_heads_mean_with_a_mask():
    mask = torch.tensor([[True] * 5, [True, True, False, True, True]])
    logits = logits_of(2, 3, 5, 5, seed=4)

    def loss(x: torch.Tensor) -> torch.Tensor:
        attention = x.masked_fill(~mask[:, None, None, :], -torch.inf).softmax(-1)
        return ga.curvature_loss(attention, Convention(heads="mean"), mask=mask)

    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=1e-6)
    (gradient,) = torch.autograd.grad(loss(logits), logits)
    assert gradient.shape == logits.shape


def test_float32_gradient_is_the_float64_one():
    attention = draw("softmax-1", 9, 4).astype(np.float32)
    one = torch.from_numpy(attention).requires_grad_()
    two = torch.from_numpy(attention.astype(np.float64)).requires_grad_()
    for convention in PRESETS:
        (short,) = torch.autograd.grad(ga.curvature_loss(one, convention), one)
        loss = ga.curvature_loss(two / two.sum(-1, keepdim=True) if convention in ("markov", "hop") else two, convention)
        (long,) = torch.autograd.grad(loss, two)
        assert short.dtype == torch.float32
        torch.testing.assert_close(short.double(), long, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("convention", [*PRESETS, DIRECTED, Convention(heads="mean")], ids=str)
def test_forward_is_the_curvature(convention):
    """The differentiable values are those of ollivier_ricci, sampled or not."""
    attention = torch.from_numpy(draw("with_zeros", 8, 6).reshape(2, 3, 8, 8))
    for edges in ("all", 5):
        kappa = ga.edge_curvature(attention, convention, edges=edges, seed=2)
        np.testing.assert_allclose(
            kappa.numpy(), ga.ollivier_ricci(attention, convention, edges=edges, seed=2).values(), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_no_bit_of_the_gradient(threads):
    for n, count in ((12, 6), (50, 1)):
        attention = torch.from_numpy(draw("ties", n, count)).requires_grad_()
        (one,) = torch.autograd.grad(ga.curvature_loss(attention, threads=1), attention)
        (two,) = torch.autograd.grad(ga.curvature_loss(attention, threads=threads), attention)
        assert torch.equal(one, two)


def test_twice_through_the_same_graph():
    logits = logits_of(6, 6)
    loss = ga.curvature_loss(logits.softmax(-1))
    (one,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (two,) = torch.autograd.grad(loss, logits)
    assert torch.equal(one, two)


def test_no_gradient_where_nothing_asks_for_it():
    attention = logits_of(6, 6).softmax(-1).detach()
    assert not ga.curvature_loss(attention).requires_grad
    with torch.no_grad():
        assert not ga.curvature_loss(logits_of(6, 6).softmax(-1)).requires_grad


# ---- zero, tiny and huge lengths


def slope(f, weights: torch.Tensor, i: int, j: int, symmetric: bool) -> tuple[float, float]:
    """One-sided slopes of f in one weight (or one symmetric pair), down and up."""
    h = 1e-6 * float(weights[i, j])
    sides = []
    for sign in (-1, 1):
        moved = weights.detach().clone()
        moved[i, j] += sign * h
        if symmetric:
            moved[j, i] = moved[i, j]
        sides.append(sign * float(f(moved) - f(weights.detach())) / h)
    return sides[0], sides[1]


@pytest.mark.parametrize("seed", range(25))
def test_directed_with_one_way_zero_lengths(seed):
    """A weight of 1 has length 0 (1 - w); the way back may be long or missing."""
    rng = np.random.default_rng(seed)
    weights = np.round(rng.uniform(0.1, 0.9, (5, 5)), 2) * (rng.random((5, 5)) < 0.6)
    np.fill_diagonal(weights, 0)
    weights[0, 1], weights[2, 3] = 1.0, 1.0
    weights[1, 0] = 0.0 if seed % 2 else 0.5
    convention = Convention(direction="directed", length="1-w", measure="uniform", alpha=0.25)
    tensor = torch.from_numpy(weights).requires_grad_()

    def total(w: torch.Tensor) -> torch.Tensor:
        return ga.edge_curvature(w, convention).sum()

    (gradient,) = torch.autograd.grad(total(tensor), tensor)
    assert torch.isfinite(gradient).all()
    for i, j in np.argwhere((weights > 0) & (weights < 1)):
        low, high = sorted(slope(total, tensor, i, j, symmetric=False))
        if high - low < 1e-4:  # no kink in this weight
            assert low - 1e-3 <= gradient[i, j] <= high + 1e-3, (i, j)


@pytest.mark.parametrize("length", ["-log w", "1-w"])
def test_one_hot_rows_have_finite_gradients(length):
    """Rows of attention that are one-hot, one way and both ways, directed and not."""
    for attention in (*draw("mutual", 6, 6), *draw("one_hot", 6, 6), *draw("dyadic", 6, 6)):
        for direction in ("mean", "max", "directed"):
            convention = Convention(direction=direction, length=length)
            tensor = torch.from_numpy(attention).requires_grad_()
            kappa = ga.edge_curvature(tensor, convention)
            if kappa.requires_grad and len(kappa):
                (gradient,) = torch.autograd.grad(kappa.sum(), tensor)
                assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("tiny", [1e-3, 1e-12, 1e-17, 1e-25, 1e-100])
def test_lengths_that_vanish_beside_others(tiny):
    """d(0, 2) = tiny + 1: the gradient of the distance lies on the path 0 - 1 - 2, though 1 + tiny may be 1."""
    weights = torch.tensor([[0, tiny, 3, 0], [tiny, 0, 1.0, 2], [3, 1, 0, 1.5], [0, 2, 1.5, 0]], dtype=torch.float64)
    weights.requires_grad_()
    convention = Convention(length="w", measure="uniform", alpha=0.25)

    def kappa(w: torch.Tensor) -> torch.Tensor:
        return ga.edge_curvature(w, convention)[1]  # the edge (0, 2)

    (gradient,) = torch.autograd.grad(kappa(weights), weights)
    both = gradient + gradient.T
    for i, j in ((0, 2), (1, 2), (1, 3), (2, 3)):
        assert float(both[i, j]) == pytest.approx(np.mean(slope(kappa, weights, i, j, symmetric=True)), abs=1e-5)


@pytest.mark.parametrize(
    ("weights", "convention"),
    [
        ([[0, 1.0, 0.5], [1, 0, 0.7], [0.5, 0.7, 0]], Convention(length="1-w", measure="exponential", exponent=0.5)),
        ([[0, 1e-200, 0.5], [1e-200, 0, 0.7], [0.5, 0.7, 0]], Convention(length="1/w", measure="uniform")),
        ([[0, 1e-200, 0.5], [1e-200, 0, 0.7], [0.5, 0.7, 0]], Convention(length="1/w", measure="exponential")),
        ([[0, 1e100, 0.5], [1e100, 0, 0.7], [0.5, 0.7, 0]], Convention.of("grc-0.6")),
        ([[0, 1e-9, 0.5], [1e-9, 0, 0.7], [0.5, 0.7, 0]], Convention.of("grc-0.5")),
        ([[0, 1e-3, 5e150], [1e-3, 0, 6e150], [5e150, 6e150, 0]], Convention.of("grc-0.5")),
    ],
)
def test_extreme_weights_have_finite_gradients(weights, convention):
    """And raise no warning of NumPy."""
    tensor = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ga.curvature_loss(tensor, convention), tensor)
    assert torch.isfinite(gradient).all()


def test_below_the_floor_counts_as_zero_without_a_slope():
    """All edges below 1e-7 on one side of the graph: their kappa of 0 is in the mean and has no gradient."""
    weights = torch.tensor([[0, 1e-9, 0.5], [1e-9, 0, 0.7], [0.5, 0.7, 0]], dtype=torch.float64, requires_grad=True)
    kappa = ga.edge_curvature(weights, "grc-0.6")
    assert len(kappa) == 3
    assert kappa[0] == 0
    (gradient,) = torch.autograd.grad(kappa[0], weights, retain_graph=True)
    assert (gradient == 0).all()
    tiny = torch.full((3, 3), 1e-9, dtype=torch.float64, requires_grad=True)
    assert ga.curvature_loss(tiny, "grc-0.6") == 0


def test_edges_without_a_value_do_not_take_part():
    """A pair at distance 0 and its loss: the mean is over the edges that have a curvature."""
    attention = torch.from_numpy(draw("mutual", 6, 1, seed=3)[0]).requires_grad_()
    result = ga.ollivier_ricci(attention)
    assert (result.status == Status.ZERO_DISTANCE).any()
    loss = ga.curvature_loss(attention)
    assert float(loss.detach()) == pytest.approx(result.values().mean())
    (gradient,) = torch.autograd.grad(loss, attention)
    assert torch.isfinite(gradient).all()


# ---- ties


def hull_distance(point: np.ndarray, cloud: np.ndarray) -> float:
    """Largest difference per coordinate between a point and the nearest one in the convex hull of a cloud."""
    count, width = cloud.shape
    inside = np.block([[cloud.T, -np.ones((width, 1))], [-cloud.T, -np.ones((width, 1))]])
    answer = linprog(
        np.append(np.zeros(count), 1.0), A_ub=inside, b_ub=np.concatenate([point, -point]),
        A_eq=np.append(np.ones(count), 0.0)[None], b_eq=[1.0],
    )  # fmt: skip
    return float(answer.fun)


TIED = {
    "two ways": [[0, 3, 2, 3, 1], [3, 0, 1, 0, 2], [2, 1, 0, 1, 0], [3, 0, 1, 0, 0], [1, 2, 0, 0, 0]],
    "square": [[0, 3, 1, 1], [3, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]],
    "ladder": [[0, 1, 0, 2, 0], [1, 0, 1, 0, 2], [0, 1, 0, 2, 0], [2, 0, 2, 0, 1], [0, 2, 0, 1, 0]],
    **{f"random {seed}": np.asarray(draw("whole", 5, 1, seed)[0]).tolist() for seed in range(6)},
}


@pytest.mark.parametrize("alpha", [0.0, 0.8, "limit"])
@pytest.mark.parametrize("name", TIED)
def test_at_ties_it_is_a_generalised_gradient(name, alpha):
    """In the sense of Clarke: a mixture of the gradients at nearby points, where there are no ties."""
    weights = np.array(TIED[name], dtype=float)
    i, j = np.nonzero(np.triu(weights, 1))
    convention = Convention(length="w", measure="uniform", alpha=alpha)
    rng = np.random.default_rng(0)

    def gradients(w: np.ndarray, edge: int) -> np.ndarray:
        tensor = torch.from_numpy(w).requires_grad_()
        (gradient,) = torch.autograd.grad(ga.edge_curvature(tensor, convention, threads=1)[edge], tensor)
        return (gradient + gradient.T).numpy()[i, j]

    for edge in range(0, len(i), 2):
        cloud = []
        for _ in range(80):
            near = np.zeros_like(weights)
            near[i, j] = near[j, i] = 1e-7 * rng.standard_normal(len(i))
            cloud.append(gradients(weights + near, edge))
        ours = gradients(weights, edge)
        assert np.isfinite(ours).all()
        assert hull_distance(ours, np.array(cloud)) < 1e-4, (i[edge], j[edge])


def test_equal_rows_are_a_summit():
    """All rows equal: kappa = 1 everywhere, the largest value there is; the gradient is finite and the same each time."""
    attention = torch.full((5, 5), 0.2, dtype=torch.float64, requires_grad=True)
    loss = ga.curvature_loss(attention)
    assert loss == 1
    (one,) = torch.autograd.grad(loss, attention)
    (two,) = torch.autograd.grad(ga.curvature_loss(attention), attention)
    assert torch.isfinite(one).all()
    assert torch.equal(one, two)
