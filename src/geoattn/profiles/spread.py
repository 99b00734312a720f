"""Batches of a profile as tasks of a Ray cluster, with the numbers of one machine, bit for bit.

A task sees one batch and sends back the states of the lenses; the driver merges them in the order of the batches, as a
profile on one machine does. So all sums have the same order.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch

from geoattn._core.errors import GeoattnError
from geoattn.profiles.batches import Batch, evaluation, read_batch
from geoattn.profiles.run import LayerKey, Part, Run, Viewer
from geoattn.runs.cluster import check_versions, cluster, processors

__all__ = ["spread"]

_RETRIES = 5  # of a batch whose process or node died


def spread(run: Run, batches: Iterable[Any], *, workers: int | None, address: str | None, threads: int | None) -> None:
    """Let the cluster see the batches, and add what it saw to ``run``, in order."""
    viewer = run.viewer
    if any(p.device.type != "cpu" for p in viewer.model.parameters()):
        raise GeoattnError("backend ray sends the model to the nodes: move it to the CPU first, with model.cpu().")
    threads = threads or 1
    with cluster(address, workers) as ray:
        # A lens with a pass of its own stays here: it looks at the first few samples only.
        lenses = [None if lens is None or lens.own_pass else lens for lens in viewer.lenses]
        sent = dataclasses.replace(viewer, lenses=lenses, examples=viewer.examples.empty())
        shared = ray.put((sent, torch.get_num_threads()))
        task = ray.remote(num_cpus=threads, max_retries=_RETRIES)(_task)
        waiting: deque[tuple[Any, Any, Batch, int]] = deque()
        source, first, number = iter(batches), run.samples, 0
        while True:
            room = (workers or max(1, processors(ray) // threads)) + 1  # one more, so that nobody waits for us
            while len(waiting) < room and (item := next(source, None)) is not None:
                batch = read_batch(item, viewer.model, number)
                # in a list, or Ray would fetch the model for each task anew
                waiting.append((task.remote([shared], item, number, first, {}), item, batch, number))
                first += batch.size
                number += 1
            if not waiting:
                return
            reference, item, batch, which = waiting.popleft()
            part = _fetch(ray, reference)
            if not _same_numbers(run, part):  # it saw a layer that an earlier batch had not, or the other way round
                again = task.remote([shared], item, which, run.samples, dict(run.layers))
                part = _fetch(ray, again)
            check_versions(part.versions)
            run.add(batch, part)


def _same_numbers(run: Run, part: Part) -> bool:
    """Whether the layers have the numbers that they would have had here: draws of edges depend on them."""
    here = dict(run.layers)
    return all(here.setdefault(key, len(here)) == number for key, number in part.layers.items())


def _fetch(ray: Any, reference: Any) -> Part:
    try:
        part = ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()
        raise GeoattnError(
            f"a batch was lost {_RETRIES + 1} times: {why[0] if why else type(error).__name__}"
        ) from None
    if isinstance(part, str):
        raise GeoattnError(part)
    return part


_VIEWERS: dict[str, Any] = {}  # of this process of a node: what was fetched last


def _task(shared: list[Any], item: Any, number: int, first: int, known: dict[LayerKey, int]) -> Part | str:
    """On a node: the part of one batch, or the words of an error."""
    import ray

    key = shared[0].hex()
    if key not in _VIEWERS:
        _VIEWERS.clear()
        _VIEWERS[key] = ray.get(shared[0])
    viewer, torch_threads = _VIEWERS[key]
    torch.set_num_threads(torch_threads)  # as in the driver: the last bits of a forward pass depend on it
    try:
        return _see(viewer, item, number, first, known)
    except GeoattnError as error:
        return str(error)


def _see(viewer: Viewer, item: Any, number: int, first: int, known: dict[LayerKey, int]) -> Part:
    with evaluation(viewer.model), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        part = viewer.see(read_batch(item, viewer.model, number), first, known)
    part.warned = [(str(warning.message), warning.category) for warning in caught]
    return part
