"""Exact curvature of long maps: against POT, and from 257 to 258 tokens.

    python -m benchmarks long_maps       # about ten minutes on two cores

The maps are softmax(s q k^T / sqrt(64)) with standard normal q and k: flat at s = 1, sharp at s = 4. POT runs `emd2`
over a pool of as many processes as geoattn has threads, with the distances given, on a few of the same pairs. The time
of geoattn holds everything: lengths, measures, shortest paths, pairs. Runs of the two sides alternate; figures are
medians of the seconds an edge takes.

POT ends at reduced costs above about -1e-12, whatever the distances are. Where W1 is 1e-10 (sharp maps under grc-0.6)
its value is then off in the sixth digit. Pairs that differ by more than 1e-12 are therefore solved once more by POT,
with distances in units of the distance of the pair. `difference` is what is left, `difference_as_given` is the first.
"""

from __future__ import annotations

import multiprocessing
import time
import warnings
from statistics import median
from typing import Any

import numpy as np

import geoattn as ga
from benchmarks.attention import softmax_attention
from geoattn.graph.build import build_graphs
from geoattn.graph.convention import Convention
from geoattn.graph.shortest_paths import default_threads, shortest_paths

# name of the row: (convention, logit scale, causal)
MAPS = {
    "markov, flat": ("markov", 1.0, False),
    "markov, sharp": ("markov", 4.0, False),
    "grc-0.6, flat": ("grc-0.6", 1.0, False),
    "grc-0.6, sharp": ("grc-0.6", 4.0, False),
    "markov, causal": ("markov", 1.0, True),
    "markov, directed": ("directed", 1.0, False),
}
PAIRS = {512: 32, 1024: 10}  # of POT, in each of its runs
RUNS = 3

_shared: dict[str, np.ndarray] = {}


def run() -> dict:
    """The rows of both tables."""
    warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)
    threads = default_threads()
    rows = [_against_pot(name, n, threads) for n in PAIRS for name in MAPS]
    return {"threads": threads, "against_pot": rows, "from_257_to_258": [_step(name, threads) for name in MAPS]}


def _map(name: str, n: int) -> tuple[np.ndarray, Convention]:
    rules, scale, causal = MAPS[name]
    convention = Convention.of("markov").but(direction="directed") if rules == "directed" else Convention.of(rules)
    attention = softmax_attention(1, n, scale)[0]
    if causal:
        attention = np.tril(attention)
        attention /= attention.sum(-1, keepdims=True)
    return attention, convention.but(floor=0.0)  # long edges and short ones are solved alike


def _seconds(attention: np.ndarray, convention: Convention, edges: Any, threads: int) -> tuple[float, Any]:
    start = time.perf_counter()
    result = ga.ollivier_ricci(attention, convention, edges=edges, threads=threads)
    return time.perf_counter() - start, result


def _against_pot(name: str, n: int, threads: int) -> dict:
    attention, convention = _map(name, n)
    graphs = build_graphs(attention[None], convention)
    distances = shortest_paths(graphs.lengths[0], directed=convention.directed)
    _shared.update(distances=np.ascontiguousarray(distances), measures=graphs.measures[0])
    few, many, peer, apart, as_given = [], [], [], 0.0, 0.0
    with multiprocessing.get_context("fork").Pool(threads) as pool:
        for k in range(RUNS):
            seconds, result = _seconds(attention, convention, 400, threads)
            few.append(seconds / 400)
            pairs = result.index[k * PAIRS[n] : (k + 1) * PAIRS[n]]
            start = time.perf_counter()
            values = pool.map(_pot_pair, [tuple(map(int, pair)) for pair in pairs], chunksize=1)
            peer.append((time.perf_counter() - start) / len(pairs))
            own = result.w1[k * PAIRS[n] : (k + 1) * PAIRS[n]]
            off = np.abs(own - values) / own
            as_given = max(as_given, float(off.max()))
            for at in np.flatnonzero(off > 1e-12):
                off[at] = abs(own[at] - _pot_in_units(tuple(map(int, pairs[at])))) / own[at]
            apart = max(apart, float(off.max()))
            if k == 0 or n <= 512:
                many.append(_seconds(attention, convention, 4000, threads)[0] / 4000)
    row = {
        "map": name, "n": n, "pot_seconds": median(peer), "seconds_400": median(few), "seconds_4000": median(many),
        "ratio_400": median(peer) / median(few), "ratio_4000": median(peer) / median(many), "difference": apart,
        "difference_as_given": as_given,
    }  # fmt: skip
    print(f"{name}, n = {n}: POT {1e3 * row['pot_seconds']:.1f} ms an edge, {row['ratio_400']:.0f}x (400 edges),"
          f" {row['ratio_4000']:.0f}x (4,000), apart {apart:.0e}", flush=True)  # fmt: skip
    return row


def _pot_pair(pair: tuple[int, int]) -> float:
    import ot

    x, y = pair
    measures = _shared["measures"]
    return float(ot.emd2(measures[x].copy(), measures[y].copy(), _shared["distances"], numItermax=10**7))


def _pot_in_units(pair: tuple[int, int]) -> float:
    """W1 by POT with distances in units of the distance of the pair."""
    import ot

    x, y = pair
    unit, measures = float(_shared["distances"][x, y]), _shared["measures"]
    distances = np.ascontiguousarray(_shared["distances"] / unit)
    return unit * float(ot.emd2(measures[x].copy(), measures[y].copy(), distances, numItermax=10**7))


def _step(name: str, threads: int) -> dict:
    maps = {n: _map(name, n) for n in (257, 258)}
    row: dict[str, Any] = {"map": name}
    for edges in (400, "all"):
        found: dict[int, list[float]] = {257: [], 258: []}
        for _ in range(9 if edges == 400 else 3):
            for n, (attention, convention) in maps.items():
                seconds, result = _seconds(attention, convention, edges, threads)
                found[n].append(seconds / (edges if edges == 400 else result.edges))
        row |= {f"seconds_{n}_{edges}": median(values) for n, values in found.items()}
        row[f"ratio_{edges}"] = median(found[258]) / median(found[257])
    print(
        f"{name}: 258 against 257 tokens {row['ratio_400']:.2f} (400 edges), {row['ratio_all']:.2f} (all)", flush=True
    )
    return row
