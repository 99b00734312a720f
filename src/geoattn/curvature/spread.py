"""Where transport problems are solved: in this process, or as tasks of a Ray cluster, with the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.versions import versions
from geoattn.curvature.complete import all_hops_one
from geoattn.curvature.transport import Transport, solve_pairs
from geoattn.graph.build import Graphs

__all__ = ["Backend", "Crew", "crew_of", "solve_graphs", "solve_pairs_of_edges"]

Backend = Literal["threads", "ray"]
Report = Callable[[int], object] | None

_TASKS = 4  # that each processor gets, so that all end at about the same time
_COLUMNS = ("w1", "denominator", "distance", "gap", "status")


@dataclass(frozen=True)
class Crew:
    """A Ray cluster that takes tasks."""

    ray: Any
    processors: int

    def run(self, solve: Callable[..., Any], shared: Any, jobs: list[tuple[Any, ...]], report: Report) -> list[Any]:
        """solve(shared, *job) of each job, on the nodes; what is shared is sent to a node once."""
        from geoattn.runs.cluster import check_versions

        task = self.ray.remote(num_cpus=1, max_retries=3)(_task)
        there = self.ray.put(shared)
        waiting = {task.remote(solve, there, *job): k for k, job in enumerate(jobs)}
        found: list[Any] = [None] * len(jobs)
        done = 0
        while waiting:
            ready, _ = self.ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                answer, theirs = self.ray.get(reference)
                check_versions(theirs)
                found[waiting.pop(reference)] = answer
                done += len(answer.w1)
            if report is not None:
                report(done)
        return found


def _task(solve: Callable[..., Any], shared: Any, *job: Any) -> tuple[Any, dict[str, str]]:
    """On a node."""
    return solve(shared, *job), versions()


@contextmanager
def crew_of(backend: Any) -> Iterator[Crew | None]:
    """None for threads of this process; for ``ray`` the cluster that is connected, that of RAY_ADDRESS, or one here."""
    if backend not in ("threads", "ray"):
        raise GeoattnError(f"backend must be 'threads' or 'ray'; got {backend!r}.")
    if backend == "threads":
        yield None
        return
    from geoattn.runs.cluster import cluster, processors

    with cluster() as ray:
        yield Crew(ray, processors(ray))


def solve_graphs(
    solve: Callable[..., Transport], crew: Crew | None, graphs: Graphs, pairs: np.ndarray, offsets: np.ndarray,
    tolerance: float, threads: int | None, report: Report,
) -> Transport:  # fmt: skip
    """Pairs of some maps: a task solves all pairs of some of them. What has a closed form needs no task."""
    count = len(graphs.lengths)
    if crew is None or count < 2 or all_hops_one(graphs):
        return solve(graphs, pairs, offsets, tolerance, threads, report)
    cuts = np.linspace(0, count, min(count, _TASKS * crew.processors) + 1).astype(int)
    jobs = [(_cut(graphs, a, b), pairs[offsets[a] : offsets[b]], offsets[a : b + 1] - offsets[a])
            for a, b in itertools.pairwise(cuts)]  # fmt: skip
    return _joined(crew.run(_solve_maps, tolerance, jobs, report), pairs, offsets)


def _cut(graphs: Graphs, first: int, last: int) -> Graphs:
    arrays = {name: getattr(graphs, name)[first:last] for name in ("lengths", "measures", "attention")}
    return replace(graphs, **arrays)


def _solve_maps(tolerance: float, graphs: Graphs, pairs: np.ndarray, offsets: np.ndarray) -> Transport:
    return solve_pairs(graphs, pairs, offsets, tolerance=tolerance, threads=1)


def solve_pairs_of_edges(
    solve: Callable[..., Transport], crew: Crew | None, graph: Any, pairs: np.ndarray, entries: np.ndarray,
    threads: int | None, report: Report,
) -> Transport:  # fmt: skip
    """Edges of one sparse graph: a task solves some of them; the graph is sent to a node once."""
    if crew is None:
        return solve(graph, pairs, entries, threads=threads, progress=report)
    parts = max(1, min(len(pairs), _TASKS * crew.processors))
    cuts = np.linspace(0, len(pairs), parts + 1).astype(int)
    jobs = [(pairs[a:b], entries[a:b]) for a, b in itertools.pairwise(cuts)]
    return _joined(crew.run(_solve_edges, (solve, graph), jobs, report), pairs, np.array([0, len(pairs)]))


def _solve_edges(shared: tuple[Callable[..., Transport], Any], pairs: np.ndarray, entries: np.ndarray) -> Transport:
    solve, graph = shared
    return solve(graph, pairs, entries, threads=1)


def _joined(parts: list[Transport], pairs: np.ndarray, offsets: np.ndarray) -> Transport:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return replace(parts[0], pairs=pairs, offsets=offsets, trees=None, potentials=None, **columns)
