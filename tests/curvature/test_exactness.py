"""The exact engine against POT, HiGHS and an exact integer solver on more than 10,000 random and hostile graphs.

Every edge of every small graph is compared with POT; one edge of each graph with HiGHS and one with the exact solver
(references/exact.py). comparison.py holds the rules.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from tests.curvature.comparison import (
    DIRECTED,
    PRESETS,
    TOLERANCE,
    Tally,
    compare,
    counts_of,
    error,
    finish,
    presets_of,
)
from tests.curvature.references.exact import problem
from tests.graphs import ATTENTION, WEIGHTS, draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

# tokens -> graphs of each family: all edges of these are compared
SMALL = {2: 35, 3: 50, 4: 45, 5: 40, 6: 35, 7: 30, 8: 20, 9: 16}

# a sample of the edges of these
LARGE = {12: 2, 17: 2, 24: 1, 33: 1, 47: 1, 48: 1, 64: 1, 65: 1}


def sweep(family: str, sizes: dict[int, int], seed: int = 0) -> Tally:
    """All presets on all sizes of a family; each graph meets HiGHS and the exact solver under one of the presets."""
    tally = Tally()
    presets = presets_of(family)
    for n, count in counts_of(family, sizes).items():
        batch = draw(family, n, count, seed)
        for k, preset in enumerate(presets):
            turn = np.arange(count) % len(presets) == k
            if turn.any():
                compare(batch[turn], preset, family, tally, highs=2, exact=2)
            if not turn.all():
                compare(batch[~turn], preset, family, tally, highs=0, exact=0)
    return tally


def test_plan_is_large_enough():
    """At least 10,000 different matrices, each under every preset that takes it; draws are reproducible."""
    different = 0
    for family in (*ATTENTION, *WEIGHTS):
        for n, count in counts_of(family, SMALL).items():
            different += len(np.unique(draw(family, n, count), axis=0))
        assert np.array_equal(draw(family, 5, 3), draw(family, 5, 3)), family
    assert different >= 10_000
    assert min(SMALL) == 2
    assert max(LARGE) == 65


@pytest.mark.parametrize("family", [*ATTENTION, *WEIGHTS])
def test_all_edges_of_small_graphs(family, record_property):
    tally = sweep(family, SMALL)
    finish(tally)
    record_property("compared", dict(tally))
    record_property("largest error", tally.worst)


@pytest.mark.parametrize("family", [*ATTENTION, *WEIGHTS])
def test_some_edges_of_large_graphs(family):
    """Sizes on either side of the limits in the kernel: 48 tokens, words of 64 bits."""
    tally = Tally()
    for preset in presets_of(family):
        for n, count in counts_of(family, LARGE).items():
            compare(draw(family, n, count), preset, family, tally, sample=8, highs=int(n < 40), exact=int(n < 20))
    finish(tally)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", [*ATTENTION, *WEIGHTS])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_wide_sweep(family, seed):
    """The same on other graphs: 33,000 more, and larger ones with more edges."""
    finish(sweep(family, SMALL, seed))
    tally = Tally()
    for preset in presets_of(family):
        for n in (10, 13, 16, 20, 32, 40, 49, 63, 65, 66, 100):
            compare(draw(family, n, 2, seed), preset, family, tally, sample=40, highs=2, exact=int(n < 20))
    finish(tally)


DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}

DTYPE_FAMILIES = ("softmax-0.3", "softmax-3", "softmax-30", "ties", "mutual", "with_zeros", "causal", "duplicates")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_precisions(dtype, preset):
    """The reference starts from the numbers that the short floats hold, as float64; rows of attention renormalised."""
    for family in DTYPE_FAMILIES:
        for n in (2, 3, 5, 8, 17):
            tensor = torch.from_numpy(draw(family, n, 6)).to(DTYPES[dtype])
            held = tensor.double().numpy()
            arrays = [tensor] if dtype == "bfloat16" else [tensor, tensor.numpy()]
            for attention in arrays:
                compare(held, preset, f"{family}, {dtype}", Tally(), attention=attention, sample=20, highs=0)


@pytest.mark.parametrize("n", [32, 33, 65, 66, 129, 130, 208, 209, 257, 258, 300])
@pytest.mark.parametrize("family", ["softmax-1", "causal_sharp", "few", "with_zeros", "levels"])
def test_where_the_kernel_changes(family, n):
    """The kernel has code of its own for rows of some lengths, and one for all longer rows."""
    attention = draw(family, n, 1)[0]
    for convention in (*PRESETS, DIRECTED["-log w"]):
        graph = problem(attention, convention)
        result = ga.ollivier_ricci(attention, convention, edges=4, threads=2)
        assert len(result.index) == 4
        for (x, y), ours, status in zip(result.index, result.kappa, result.status, strict=True):
            reference, expected = graph.kappa(x, y, "pot")
            assert Status(int(status)).name.lower() == expected
            assert error(ours, reference) <= TOLERANCE, (convention, x, y, ours, reference)


TIES = [
    ("ties", 200, "directed"), ("ties", 300, "directed"), ("sparse_ties", 200, "directed"), ("sparse_ties", 300, "hop"),
    ("sparse_ties", 400, "hop"), ("ties", 300, "markov"), ("ties", 300, "grc-0.6"), ("circulant", 300, "markov"),
    ("blocks", 300, "grc-0.5"), ("ring", 300, "hop"), ("ring", 300, "directed"), ("dyadic", 300, "hop"),
    ("dyadic", 300, "directed"), ("causal", 300, "hop"), ("one_hot", 300, "hop"), ("tree", 300, "hop"),
    ("duplicates", 300, "markov"), ("uniform", 300, "grc-0.6"), ("equal_rows", 300, "directed"),
]  # fmt: skip

TIES += [(family, n, name) for n in (65, 257) for family, last, name in TIES if last == 300]


@pytest.mark.parametrize(("family", "n", "name"), TIES)
def test_ties_do_not_stall(family, n, name):
    """Equal lengths make most steps of a simplex method stand still; it must get on all the same."""
    attention = draw(family, n, 1)[0]
    convention = DIRECTED["-log w"] if name == "directed" else Convention.of(name)
    start = time.process_time()

    def watch(done: int, total: int) -> None:
        assert time.process_time() - start < 20, f"stalled: {done} of {total} edges after 20 seconds"

    result = ga.ollivier_ricci(attention, convention, edges=5, threads=1, progress=watch)
    graph = problem(attention, convention)
    for (x, y), ours, status in zip(result.index, result.kappa, result.status, strict=True):
        reference, expected = graph.kappa(x, y, "pot")
        assert Status(int(status)).name.lower() == expected
        assert error(ours, reference) <= TOLERANCE, (x, y, ours, reference)
