"""Curvature on a Ray cluster of two nodes: the same bits as in this process."""

from __future__ import annotations

import hashlib

import networkx as nx
import numpy as np
import pytest

import geoattn as ga
from geoattn.curvature.spread import crew_of

pytest.importorskip("ray")

from tests.runs.test_cluster import Cluster, cluster, finish

__all__ = ["cluster"]

_DRIVER = """
import os, sys
os.environ["RAY_ADDRESS"] = sys.argv[1]
import ray
ray.init(logging_level="ERROR", log_to_driver=False)  # a connection that ollivier_ricci uses and keeps
from tests.curvature.test_spread import fingerprints
print(*fingerprints("ray"))
"""


def fingerprints(backend: str) -> list[str]:
    """Of a sparse graph, a sample of its edges, and a batch of maps."""
    graph = nx.barabasi_albert_graph(300, 4, seed=2)
    rng = np.random.default_rng(0)
    maps = np.exp(2 * rng.standard_normal((3, 2, 12, 12)))
    maps /= maps.sum(axis=-1, keepdims=True)
    told: list[tuple[int, int]] = []
    results = [
        ga.ollivier_ricci(graph, "grc-0.6", backend=backend, progress=lambda *now: told.append(now)),
        ga.ollivier_ricci(graph, "markov", edges=50, seed=3, backend=backend),
        ga.ollivier_ricci(maps, backend=backend),
        ga.ollivier_ricci(maps, "hop", edges=20, seed=1, backend=backend),
        ga.ollivier_ricci(maps, ga.Convention.of("markov").but(direction="directed"), backend=backend),
    ]
    assert told[-1] == (1184, 1184)
    arrays = [getattr(result, name) for result in results for name in ("kappa", "w1", "distance", "gap", "status")]
    return [hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16] for array in arrays]


@pytest.mark.timeout(600)
def test_the_same_bits_on_two_nodes(cluster: Cluster) -> None:
    there = finish(cluster.run("-c", _DRIVER, cluster.address)).split()
    assert there[-25:] == fingerprints("threads")


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ga.GeoattnError, match="backend must be 'threads' or 'ray'; got 'dask'"), crew_of("dask"):
        pass
