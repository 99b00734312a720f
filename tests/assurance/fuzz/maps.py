"""Maps and graphs by seed through the public functions: POT, the exact solver and the other engine must agree."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

import geoattn as ga
from geoattn.curvature import Status
from geoattn.graph.convention import PRESETS
from tests.curvature.comparison import Tally, compare
from tests.graphs import ATTENTION

_CONVENTIONS = [
    *(ga.Convention.of(name) for name in PRESETS),
    ga.Convention(length="1/w", measure="uniform"),
    ga.Convention(length="1-w", alpha=0.3, direction="max"),
    ga.Convention(direction="min", measure="uniform", alpha=0.5),
    ga.Convention(direction="product", length="hop"),
    ga.Convention(direction="directed"),
    ga.Convention(direction="directed", length="hop", measure="uniform", alpha=0.5),
]
_SAMPLE = 3  # edges of a map that are compared with POT


def drawn(number: int) -> tuple[str, np.ndarray, ga.Convention, np.random.Generator]:
    """Family, map and convention of a number; the same ones on every machine."""
    rng = np.random.default_rng([20, number % 2**32])
    family = list(ATTENTION)[int(rng.integers(len(ATTENTION)))]
    share = rng.random()  # long maps, whose pairs are solved on a part of their tokens, are few: one takes 30 s
    n = int(rng.integers(*((2, 13) if share < 0.9 else (13, 48) if share < 0.99995 else (258, 400))))
    return family, ATTENTION[family](rng, n), _CONVENTIONS[int(rng.integers(len(_CONVENTIONS)))], rng


def close(found: np.ndarray, wanted: np.ndarray, result: Any) -> None:
    """Equal, up to what the last bit of a sum of a row may change in the shortest length of the map."""
    distance = result.column("distance")
    shortest = distance[distance > 0].min(initial=1.0)
    within = 1e-9 + 1e-14 / shortest
    np.testing.assert_allclose(found, wanted, rtol=within, atol=within)


def check(number: int, tally: Tally) -> None:
    """One map: values against the references, laws of the other functions."""
    family, matrix, convention, rng = drawn(number)
    compare(matrix[None], convention, f"map {number} ({family})", tally, highs=0, exact=0, sample=_SAMPLE)
    result = ga.ollivier_ricci(matrix, convention, threads=1)
    assert not (result.column("status") == Status.STALLED).any(), "stalled"
    which = number % 6
    if which == 0 and convention.denominator == "distance":
        bounds = ga.curvature_bounds(matrix, convention)
        kappa, low, high = result.kappa, bounds.lower, bounds.upper
        good = np.isfinite(kappa) & np.isfinite(low) & np.isfinite(high)
        slack = 1e-9 * np.maximum(1.0, np.abs(kappa[good]))
        assert (low[good] <= kappa[good] + slack).all()
        assert (kappa[good] <= high[good] + slack).all()
    elif which == 1:
        order = rng.permutation(len(matrix))  # another order of the tokens is the same graph
        turned = ga.ollivier_ricci(matrix[np.ix_(order, order)], convention, threads=1).kappa
        close(turned, result.kappa[np.ix_(order, order)], result)
    elif which == 2 and convention.measure == "markov":
        import scipy.sparse as sparse

        graph = sparse.csr_array(matrix)
        if graph.nnz and (graph.sum(axis=1) > 0).all():
            other = ga.ollivier_ricci(graph, convention, threads=1)
            both = np.isfinite(other.kappa) & np.isfinite(result.kappa[tuple(other.index.T)])
            close(other.kappa[both], result.kappa[tuple(other.index.T)][both], result)
    elif which == 3:
        found = ga.spectrum(matrix)
        assert np.abs(found.eigenvalues).max(initial=0) <= 1 + 1e-9
    elif which == 4:
        kind = ("plain", "augmented", "balanced")[number // 6 % 3]
        values = ga.forman_ricci(matrix, kind).kappa
        assert not np.isinf(values).any()
    elif which == 5:
        threads = ga.ollivier_ricci(matrix, convention, threads=2)
        assert threads.kappa.tobytes() == result.kappa.tobytes()


def fuzz(numbers: Iterable[int]) -> tuple[Counter, list[tuple[int, str]]]:
    """How many graphs and edges were compared, and (number, what is wrong)."""
    tally, wrong = Tally(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            try:
                check(number, tally)
            except ga.GeoattnError as error:
                tally["refused"] += 1
                if "\n" in str(error):
                    wrong.append((number, f"more than one line: {error}"))
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                wrong.append((number, traceback.format_exc()))
    return tally, wrong


def main(arguments: list[str]) -> Any:
    first, count = map(int, arguments)
    tally, wrong = fuzz(range(first, first + count))
    sys.stdout.write(f"{dict(tally)}\n")
    for number, said in wrong:
        sys.stdout.write(f"map {number}: {said[-1500:]}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
