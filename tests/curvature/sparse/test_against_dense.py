"""The sparse solver against the dense one on the same graphs, under all kinds of conventions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoattn as ga
from geoattn.curvature import Status
from tests.curvature.sparse.graphs import CONVENTIONS, as_rows, random_sparse

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")
PRESETS = [ga.Convention.of(name) for name in ("markov", "hop", "grc-0.5", "grc-0.6")]
KINDS = ("weights", "symmetric", "ties", "unit", "hub")


def compare(matrix, convention, tolerance=1e-9, **chosen):
    """Same edges, same values, same statuses."""
    sparse = ga.ollivier_ricci(matrix, convention, **chosen)
    dense_input = as_rows(matrix) if convention.measure == "markov" else matrix.toarray()
    dense = ga.ollivier_ricci(dense_input, convention, **chosen)
    np.testing.assert_array_equal(sparse.index, dense.places())
    status = dense.column("status")
    differs = sparse.status != status
    unsure = np.isin(sparse.status, (Status.UNCERTAIN,)) | np.isin(status, (Status.UNCERTAIN, Status.STALLED))
    assert not (differs & ~unsure).any(), (sparse.index[differs], sparse.status[differs], status[differs])
    sure = ~differs
    for name, within in (("kappa", tolerance), ("w1", tolerance), ("distance", 1e-12)):
        np.testing.assert_allclose(
            getattr(sparse, name)[sure], dense.column(name)[sure], rtol=within, atol=within, err_msg=name
        )
    assert sparse.max_gap <= 1e-9
    return sparse


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: f"{c.direction}-{c.length}-{c.measure}-{c.alpha}")
def test_all_conventions(convention):
    rng = np.random.default_rng(CONVENTIONS.index(convention))
    for kind in KINDS:
        n = int(rng.integers(5, 40))
        matrix = random_sparse(rng, n, rng.uniform(1.5, 6), kind=kind)
        if kind == "unit" and convention.length in ("1-w",):
            matrix = matrix / 2
        compare(matrix, convention)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([*PRESETS, *CONVENTIONS]), st.booleans(), st.sampled_from(KINDS), st.integers(3, 24),
    st.floats(1, 6), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_equal_to_the_dense_solver_to_twelve_digits(convention, directed, kind, n, degree, seed):
    matrix = random_sparse(np.random.default_rng(seed), n, degree, kind=kind)
    if directed:
        convention = convention.but(direction="directed")
    if kind == "unit" and convention.length == "1-w":
        matrix = matrix / 2
    compare(matrix, convention, tolerance=1e-12)


@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.5", "grc-0.6"])
@pytest.mark.parametrize("kind", KINDS)
def test_presets_on_larger_graphs(preset, kind):
    rng = np.random.default_rng(7)
    compare(random_sparse(rng, 150, 5, kind=kind), ga.Convention.of(preset))


def test_sample_draws_the_same_edges():
    rng = np.random.default_rng(3)
    matrix = random_sparse(rng, 60, 5, kind="symmetric")
    sampled = compare(matrix, ga.Convention.of("grc-0.6"), edges=20, seed=5)
    assert len(sampled.kappa) == 20
    assert sampled.edges == len(ga.ollivier_ricci(matrix, "grc-0.6").kappa)


@pytest.mark.slow
def test_ten_thousand_hostile_graphs():
    rng = np.random.default_rng(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)
        solved = edges = 0
        for k in range(10_000):
            convention = CONVENTIONS[k % len(CONVENTIONS)]
            n = int(rng.integers(2, 30)) if k % 500 else int(rng.integers(200, 700))
            matrix = random_sparse(rng, n, rng.uniform(1, 5), kind=KINDS[int(rng.integers(len(KINDS)))])
            if convention.length in ("1-w", "-log w"):
                matrix = matrix * rng.uniform(0.3, 1.0)
            result = compare(matrix, convention)
            edges += len(result.kappa)
            solved += int((result.status == Status.SOLVED).sum())
        assert solved > 0.5 * edges > 100_000
