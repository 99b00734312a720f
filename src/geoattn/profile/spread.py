"""Batches of a profile as tasks of a Ray cluster, with the numbers of one machine, bit for bit.

A task sees one batch and sends back what a profile would have added, piece by piece; the driver adds it in the order of
the batches. So all sums have the same order as on one machine.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from geoattn.capture.selection import Layers
from geoattn.capture.session import capture
from geoattn.errors import GeoattnError
from geoattn.profile.batches import Batch, evaluation, read_batch
from geoattn.profile.examples import Examples
from geoattn.profile.lenses import CurvatureLens, Extremes
from geoattn.profile.run import Run
from geoattn.profile.tally import Moments, Tally
from geoattn.runs.cluster import check_versions, cluster, processors
from geoattn.runs.versions import versions

__all__ = ["Part", "add_part", "see_part", "spread"]

_RETRIES = 5  # of a batch whose process or node died


class _ListedTally(Tally):
    """Writes down what is to be added instead of adding it."""

    def __init__(self) -> None:
        super().__init__(1, 0)
        self.added: list[tuple[Any, ...]] = []

    def add(
        self, layer: int, lens: str, convention: str, samples: np.ndarray, heads: slice, h: int, seen: Moments
    ) -> None:
        self.added.append((layer, lens, convention, samples, heads, h, seen))


class _ListedLens(CurvatureLens):
    """Writes down the extremes of each piece."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.kept: list[tuple[int, Extremes]] = []

    def keep(self, layer: int, seen: Extremes) -> None:
        self.kept.append((layer, seen))


@dataclass(eq=False)
class Part:
    """What one batch adds to a profile."""

    layers: dict[tuple[str, int], int]
    added: list[tuple[Any, ...]]
    kept: list[list[tuple[int, Extremes]]]
    notes: list[dict[str, None]]
    examples: Examples
    skipped: dict[str, int]
    maps: int
    calls: int
    warned: list[tuple[str, type[Warning]]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=versions)


def spread(run: Run, batches: Iterable[Any], layers: Layers, *, workers: int | None, address: str | None) -> None:
    """Let the cluster see the batches, and add what it saw to ``run``, in order."""
    if any(p.device.type != "cpu" for p in run.model.parameters()):
        raise GeoattnError("backend ray sends the model to the nodes: move it to the CPU first, with model.cpu().")
    threads = run.threads or 1
    with cluster(address, workers) as ray:
        # the progress stays here, the smoothness lens too: it looks at the first few samples only
        settings = (run.special, [lens.settings for lens in run.lenses], run.others, threads, run.examples.empty())
        shared = ray.put((run.model, layers, settings, torch.get_num_threads()))
        task = ray.remote(num_cpus=threads, max_retries=_RETRIES)(_task)
        waiting: deque[tuple[Any, Any, Batch, int]] = deque()
        source, first, number = iter(batches), run.samples, 0
        while True:
            room = (workers or max(1, processors(ray) // threads)) + 1  # one more, so that nobody waits for us
            while len(waiting) < room and (item := next(source, None)) is not None:
                batch = read_batch(item, run.model, number)
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
            add_part(run, batch, part)


def add_part(run: Run, batch: Batch, part: Part) -> None:
    """Add what was seen of a batch, as if ``run`` had seen it."""
    check_versions(part.versions)
    run.begin(batch)
    for key in part.layers:
        run.layers.setdefault(key, len(run.layers))
    for arguments in part.added:
        run.tally.add(*arguments)
    for lens, kept, notes in zip(run.lenses, part.kept, part.notes, strict=True):
        for layer, seen in kept:
            lens.keep(layer, seen)
        lens.notes |= notes
    run.examples.absorb(part.examples)
    run.maps += part.maps
    for name, count in part.skipped.items():
        run.skipped[name] = run.skipped.get(name, 0) + count
    for message, category in part.warned:
        warnings.warn(message, category, stacklevel=4)
    run.look_deeper()
    run.end(part.calls)


def see_part(
    model: torch.nn.Module, layers: Layers, settings: tuple[Any, ...], item: Any, number: int, first: int,
    known: dict[tuple[str, int], int],
) -> Part:  # fmt: skip
    """See one batch whose first sample has the number ``first``; layers have the numbers that are ``known``."""
    special, lenses, others, threads, examples = settings
    tally, listed = _ListedTally(), [_ListedLens(c, edges, threads, seed) for c, edges, seed in lenses]
    run = Run(model, special, list(listed), others, threads, tally, examples, None)
    run.samples, run.layers = first, dict(known)
    with evaluation(model), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        run.begin(read_batch(item, model, number))
        with capture(model, layers=layers, reduce=run.look) as record:
            run.batch.run(model)
    return Part(
        run.layers, tally.added, [lens.kept for lens in listed], [lens.notes for lens in listed], examples, run.skipped,
        run.maps, len(record), [(str(w.message), w.category) for w in caught],
    )  # fmt: skip


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


_MODELS: dict[str, Any] = {}  # of this process of a node: what was fetched last


def _task(shared: list[Any], item: Any, number: int, first: int, known: dict[tuple[str, int], int]) -> Part | str:
    """On a node."""
    import copy

    import ray

    key = shared[0].hex()
    if key not in _MODELS:
        _MODELS.clear()
        _MODELS[key] = ray.get(shared[0])
    model, layers, settings, torch_threads = _MODELS[key]
    torch.set_num_threads(torch_threads)  # as in the driver: the last bits of a forward pass depend on it
    try:
        return see_part(model, layers, (*settings[:-1], copy.deepcopy(settings[-1])), item, number, first, known)
    except GeoattnError as error:
        return str(error)
