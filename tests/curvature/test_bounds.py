"""Bounds bracket the exact value on friendly and hostile graphs, in its layout, as tightly as they claim."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import geoattn as ga
from geoattn.curvature.excess import metric_graph
from geoattn.graph.build import build_graphs
from geoattn.graph.convention import PRESETS

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

CONVENTIONS = [
    *PRESETS.values(),
    ga.Convention(length="1/w", measure="uniform"),
    ga.Convention(length="1-w", alpha=0.3, direction="max"),
    ga.Convention(alpha="limit", measure="uniform"),
    ga.Convention(alpha="limit", length="hop"),
    ga.Convention(direction="directed"),
    ga.Convention(direction="directed", length="hop", measure="uniform", alpha=0.5),
    ga.Convention(direction="directed", alpha="limit", length="1/w"),
]
each_convention = pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: c.name)


def softmax(n, scale, seed, *, batch=()):
    logits = scale * np.random.default_rng(seed).normal(size=(*batch, n, n))
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def normalised(weights):
    return weights / weights.sum(axis=-1, keepdims=True)


def hostile():
    """Name -> rows that sum to one."""
    rng = np.random.default_rng(5)
    n = 9
    sparse = softmax(n, 1, 1) * (rng.random((n, n)) < 0.4) + 0.1 * np.eye(n)
    one_hot = np.eye(n)[rng.permutation(n)]
    return {
        "uniform": np.full((n, n), 1 / n),
        "equal rows": np.tile(softmax(1, 1, 0), (n, n)) / n,
        "sparse": normalised(sparse),
        "one-hot": one_hot,
        "nearly one-hot": normalised(one_hot + 1e-12),
        "identity": np.eye(n),
        "two tokens": np.array([[0.25, 0.75], [0.5, 0.5]]),
        "duplicates": normalised(np.kron(softmax(4, 2, 2), np.ones((2, 2)))),
        "30 orders": normalised(10.0 ** rng.uniform(-30, 0, size=(n, n))),
        "blocks": normalised(np.kron(np.eye(2), softmax(4, 1, 3)) + 0.0),
        "causal": normalised(np.tril(softmax(n, 1, 4))),
        "causal dyadic": normalised(np.tril(np.ones((8, 8)))),
    }


def assert_brackets(attention, convention, **options):
    exact = ga.ollivier_ricci(attention, convention, **options)
    bounds = ga.curvature_bounds(attention, convention, **options)
    np.testing.assert_array_equal(bounds.status, exact.status)
    nothing = np.isnan(exact.kappa)
    for bound in (bounds.lower, bounds.upper):
        np.testing.assert_array_equal(np.isnan(bound), nothing)
    room = 1e-9 * np.maximum(1, np.abs(exact.kappa)) * (np.abs(exact.kappa) > 1e3)  # the exact value's own rounding
    assert (nothing | (bounds.lower <= exact.kappa + room)).all()
    assert (nothing | (exact.kappa <= bounds.upper + room)).all()
    return exact, bounds


@each_convention
@pytest.mark.parametrize("scale", [0.3, 1, 4])
def test_brackets_the_exact_value_on_softmax_attention(convention, scale):
    for n in (2, 3, 8, 17):
        assert_brackets(softmax(n, scale, n, batch=(3,)), convention)


@each_convention
@pytest.mark.parametrize("name", hostile())
def test_brackets_the_exact_value_on_hostile_graphs(convention, name):
    assert_brackets(hostile()[name], convention)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    n=st.integers(2, 12),
    scale=st.floats(0, 12),
    density=st.floats(0, 1),
    seed=st.integers(0, 10**6),
    which=st.integers(0, len(CONVENTIONS) - 1),
)
def test_brackets_the_exact_value_always(n, scale, density, seed, which):
    keep = np.random.default_rng(seed).random((n, n)) < density
    assert_brackets(normalised(softmax(n, scale, seed) * (keep | np.eye(n, dtype=bool))), CONVENTIONS[which])


@pytest.mark.parametrize(
    ("preset", "widest"), [("markov", 0.065), ("hop", 1e-10), ("grc-0.6", 2e-3), ("grc-0.5", 2e-3)]
)
def test_as_tight_as_documented(preset, widest):
    for scale in (1, 4):
        bounds = ga.curvature_bounds(softmax(65, scale, 7), preset, edges=400)
        assert bounds.summary()["width_mean"] < widest


def test_more_steps_are_never_much_wider_and_zero_steps_still_bracket():
    attention = softmax(20, 2, 0)
    kappa = ga.ollivier_ricci(attention).values()
    widths = []
    for steps in (0, 1, 4, 16):
        lower, upper = ga.curvature_bounds(attention, steps=steps).values()
        assert (lower <= kappa).all()
        assert (kappa <= upper).all()
        widths.append((upper - lower).mean())
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.2 * widths[0]


def test_the_independent_plan_beats_every_hub_and_total_variation_times_diameter():
    """The reason why the docstring says that these plans need not be tried."""
    convention = ga.Convention.of("markov")
    for seed in range(5):
        metric = metric_graph(build_graphs(softmax(12, 3, seed)[None], convention), 0)
        problem = metric.excess(np.argwhere(np.triu(np.ones((12, 12)), 1)))
        s, t, d = problem.surplus, problem.deficit, metric.distances
        independent = ((s @ d) * t).sum(axis=1) / t.sum(axis=1)
        hubs = s @ d + t @ d.T
        support = ((s > 0)[:, :, None] & (t > 0)[:, None, :]) * d
        assert (independent <= hubs.min(axis=1) + 1e-12).all()
        assert (independent <= s.sum(axis=1) * support.max(axis=(1, 2)) + 1e-12).all()


def test_sampled_edges_are_those_of_the_exact_sample():
    attention = softmax(12, 1, 3, batch=(2, 3))
    exact, bounds = assert_brackets(attention, "markov", edges=10, seed=4)
    np.testing.assert_array_equal(bounds.index, exact.index)
    assert bounds.edges == exact.edges == 6 * 66
    whole = ga.curvature_bounds(attention)
    np.testing.assert_allclose(bounds.lower, whole.lower[tuple(bounds.index.T)], rtol=0, atol=1e-12)


def test_mask_float16_torch_and_mean_over_heads():
    attention = torch.from_numpy(softmax(10, 1, 1, batch=(2, 4))).half()
    mask = np.ones((2, 10), dtype=bool)
    mask[0, 7:] = False
    attention[0, :, :, 7:] = 0
    attention = (attention.float() / attention.float().sum(-1, keepdim=True)).half()
    assert_brackets(attention, "markov", mask=mask)
    _, bounds = assert_brackets(attention, ga.Convention(heads="mean"), mask=mask)
    assert bounds.lower.shape == (2, 10, 10)


def test_causal_attention_with_a_plan_is_solved_and_without_one_has_no_value():
    causal = normalised(np.tril(softmax(8, 1, 0)))
    exact, bounds = assert_brackets(causal, ga.Convention(direction="directed"))
    solved = exact.status == ga.curvature.Status.SOLVED
    assert solved.any()
    assert (exact.status == ga.curvature.Status.UNREACHABLE).any()
    assert bounds.width[solved].max() < 1


def test_negative_weights_and_wrong_settings_are_refused():
    with pytest.raises(ga.GeoattnError, match="must not be negative"):
        ga.curvature_bounds(np.array([[0.5, 0.5], [1.5, -0.5]]))
    with pytest.raises(ga.GeoattnError, match="'all' or"):
        ga.curvature_bounds(np.full((3, 3), 1 / 3), edges=0)
    with pytest.raises(ga.GeoattnError, match="steps must be a whole number"):
        ga.curvature_bounds(np.full((3, 3), 1 / 3), steps=-1)


def test_no_edges_no_values():
    bounds = ga.curvature_bounds(np.eye(4))
    assert np.isnan(bounds.lower).all()
    assert np.isnan(bounds.summary()["width_mean"])
