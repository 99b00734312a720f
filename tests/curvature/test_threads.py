"""The caller is one of the threads: it reports progress, hears of errors, and may itself be any thread of Python."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import geoattn as ga


def attention(graphs: int, n: int) -> np.ndarray:
    logits = np.random.default_rng(n).normal(size=(graphs, n, n))
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("graphs", "n", "edges"), [(40, 9, "all"), (1, 65, "all"), (3, 130, 200), (1, 300, 60)])
def test_no_value_depends_on_the_number_of_threads(graphs, n, edges):
    a = attention(graphs, n)
    one, *others = (ga.ollivier_ricci(a, edges=edges, threads=threads) for threads in (1, 2, 3, 7))
    for other in others:
        np.testing.assert_array_equal(one.column("w1"), other.column("w1"))
        np.testing.assert_array_equal(one.column("gap"), other.column("gap"))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_of_progress_ends_the_work(threads):
    def stop(done: int, total: int) -> None:
        raise RuntimeError(f"{done} are enough")

    start = time.monotonic()
    with pytest.raises(ga.GeoattnError, match=r"progress= raised RuntimeError: \d+ are enough") as raised:
        ga.ollivier_ricci(attention(1, 400)[0], threads=threads, progress=stop)
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert time.monotonic() - start < 10  # all edges take minutes


def test_callers_side_by_side():
    maps = [attention(1, n)[0] for n in (150, 120, 100)]
    seen: list[int] = []

    def solve(a: np.ndarray) -> np.ndarray:
        return ga.ollivier_ricci(a, threads=2, progress=lambda done, _: seen.append(done)).column("w1")

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(solve, maps))
    for a, w1 in zip(maps, found, strict=True):
        np.testing.assert_array_equal(w1, ga.ollivier_ricci(a, threads=1).column("w1"))
    assert max(seen) == 150 * 149 // 2
