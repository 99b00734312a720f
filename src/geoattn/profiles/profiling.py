"""`profile`: a model and batches in, one tidy table out."""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from geoattn import _native
from geoattn._core.arguments import Count, read_choice, read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn._core.progress import guarded
from geoattn._version import __version__
from geoattn.attention.selection import Layers
from geoattn.curvature.layout import read_edges
from geoattn.datasets.companions import companions_of
from geoattn.datasets.own_data import OwnBatches
from geoattn.graph.convention import Convention
from geoattn.graph.shortest_paths import default_threads
from geoattn.profiles.batches import evaluation, read_batch
from geoattn.profiles.examples import Examples
from geoattn.profiles.lens import Lens, LensSettings, make_lenses
from geoattn.profiles.lenses.curvature import CurvatureLens
from geoattn.profiles.pieces import SINKS
from geoattn.profiles.precision import Precision
from geoattn.profiles.refinement import refine, widest_interval
from geoattn.profiles.result import Key, Profile
from geoattn.profiles.run import Run, Viewer
from geoattn.profiles.special import read_special
from geoattn.profiles.table import make_table
from geoattn.runs.drive import BACKENDS

__all__ = ["finish", "profile"]

if TYPE_CHECKING:
    Model = nn.Module
    Tokens = Literal["all", "content"]
    Backend = Literal["local", "ray"]
    Sink = Literal["refuse", "node", "renormalise"]
    Number = float
else:  # checked below, with words that help
    Model = Tokens = Backend = Sink = Number = Any


def profile(
    model: Model,
    batches: Any,
    *,
    tokens: Tokens = "all",
    convention: str | Convention | Sequence[str | Convention] = "markov",
    precision: Number = 0.05,
    edges: Any = None,
    minutes: Number | None = None,
    sink: Sink = "refuse",
    layers: Layers = None,
    lenses: str | Lens | Sequence[str | Lens] = ("weights", "sink_mass", "spectrum"),
    tokenizer: Any = None,
    processor: Any = None,
    column: str | None = None,
    special: Any = None,
    smoothness_samples: Count = 16,
    examples: Count = 1,
    resamplings: Count = 1000,
    level: float = 0.95,
    seed: Count = 0,
    threads: Count | None = None,
    name: str | None = None,
    data: str | None = None,
    progress: Callable[[float, int | None], object] | None = None,
    backend: Backend = "local",
    workers: Count | None = None,
    address: str | None = None,
) -> Profile:
    r"""Measure the attention of each layer and head of a model on data: curvature, weights, spectrum.

    Parameters
    ----------
    model
        Any PyTorch model with attention, or a pipeline of transformers. Run in evaluation mode, without gradients; its
        mode is put back.
    batches
        Your data: a list of strings, a BatchEncoding, a DataFrame or ``datasets.Dataset`` with its ``column``, a .txt,
        .csv, .jsonl or .parquet file, a folder or a list of images, a `Dataset`; or an iterable of any of these or of
        tensors, as data loaders give. Batches are read once; memory does not grow with their number.
    tokenizer, processor
        For texts and images. Default: those of the pipeline, or those in the folder that the model was loaded from.
        Texts are cut at 512 tokens, or fewer where the model takes fewer: a warning and the notes say how many were.
        Without a processor images are resized to the model's ``config.image_size`` and normalised as for its kind.
    tokens
        ``"all"``, or ``"content"``: CLS, SEP, BOS, registers and other special tokens leave the graph, and rows are
        divided by the weight that remains. They are found by ``tokenizer``, by the model's configuration, from the
        number of patches, or given as ``special``: token ids, or how many come first (1: the sink of many decoders).
    convention
        One or several, by name or as `Convention`; the first one is that of the examples.
    precision, minutes
        All edges of maps of up to 65 tokens are solved. Of larger maps edges are drawn by ``seed`` until the half-width
        of the interval of each head's distance to one is at most ``precision``, with at least 32 edges a head and 24 a
        map, or until ``minutes`` are over. The interval is for the edges of the given data, not for other data; the
        table has it as ``half_width``, and ``settings["precision"]`` says what was asked for and what was reached.
        Batches that can be read once only are seen once, which may leave some heads above it.
    edges
        Instead of a precision: ``"all"``, a number of edges of each map, or ``"auto"``: all edges of maps of up to 65
        tokens, 512 of larger ones.
    sink
        What to do with rows that sum to less than one, as models with attention sinks make them (gpt-oss): ``"refuse"``
        them with an error, add the sink as a ``"node"`` that keeps the mass it gets, or ``"renormalise"`` the rows.
    layers
        Which modules, by pattern, as in `capture`. Cross-attention and steps of a generation are not graphs on one set
        of tokens; they are counted in ``settings["skipped"]``.
    lenses
        ``curvature`` is always there; ``weights``: row entropy, weight on the token itself, variance;
        ``sink_mass``: mean weight on the first and on the heaviest token; ``spectrum``:
        second and smallest eigenvalue, Dobrushin coefficient, irreversibility. On request ``smoothness``: local
        Lipschitz constants of heads (``local_constant``, ``bound``, ``ratio``, ``r2_gamma``; see `model_smoothness`)
        and, as lens ``smoothness-layer``, of whole layers; ``gradient_flow``: how far heads are from gradient flows
        (``gradient_share``, ``metric_share``, ``explained``, ``symmetry``, ``alignment``; see
        `geoattn.dynamics.gradient_share`). An object of the contract `geoattn.profiles.Lens` is a lens of your own.
    smoothness_samples
        Number of samples that the lenses ``smoothness`` and ``gradient_flow`` evaluate, from the start of the data,
        with all their tokens.
    examples
        How many samples to keep with their edges, for the report.
    resamplings, level
        Of the bootstrap over samples, from which the intervals come.
    progress
        Called with (samples done, samples in all or None), after each layer. A sample counts again in each further pass
        over the data that a precision needs.
    backend, workers, address
        ``"ray"``: batches are tasks of the Ray cluster at ``address`` (by default one on this machine), at most
        ``workers`` at a time, each with ``threads`` processors (one by default). The numbers are the same.

    Returns
    -------
    Profile
        The table has distance_to_one = mean of :math:`1 - \kappa` (the W1 distance to a point mass at 1), mean and
        negative_share with intervals, spread and quantiles without, for each head, each layer and the whole model.

    Notes
    -----
    Cost: that of `ollivier_ricci` on each map, beside one forward pass per batch. Memory: that of one layer's maps, at
    most 64 MiB at a time, and O(resamplings) per head and statistic.

    Examples
    --------
    >>> import geoattn as ga
    >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=8)
    >>> result = ga.profile(model, digits)
    >>> result
    Profile(LViT: 8 layers, 8 samples, 8704 values)
    >>> value, low, high = result.value("distance_to_one", layer=0)
    >>> low <= value <= high
    True
    """
    started = time.perf_counter()
    companions = companions_of(model, tokenizer, processor)
    model = companions.model
    if not 0 < level < 1:
        raise GeoattnError(f"level must lie between 0 and 1; got {level!r}.")
    conventions = _read_conventions(convention)
    read_choice("sink", sink, SINKS)
    precision = read_number("precision", precision, above=0)
    minutes = None if minutes is None else read_number("minutes", minutes, above=0)
    source = OwnBatches(batches, companions, column)
    tokenizer = companions.tokenizer
    if edges is None:
        asked = Precision(precision, level, _count_samples(source, model))
    else:
        asked = edges if isinstance(edges, str) and edges == "auto" else read_edges(edges) or "all"
    threads = None if threads is None else read_count("threads", threads, least=1)
    if backend not in BACKENDS:
        raise GeoattnError(f"backend must be {' or '.join(BACKENDS)}; got {backend!r}.")
    workers = None if workers is None else read_count("workers", workers, least=1)
    smoothness_samples = read_count("smoothness_samples", smoothness_samples, least=1)
    seed, resamplings = read_count("seed", seed, least=0), read_count("resamplings", resamplings, least=2)
    rules = read_special(tokens, special, tokenizer, model)
    made = LensSettings(model, layers, conventions, asked, threads, seed, resamplings, smoothness_samples)
    chosen, lenses_made = make_lenses(lenses, made)
    kept = Examples(read_count("examples", examples, least=0), tokenizer)
    run = Run(Viewer(model, layers, rules, lenses_made, kept, sink), guarded(progress))
    for lens in lenses_made:
        if isinstance(lens, CurvatureLens):
            lens.deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
            lens.showing = kept.wanted if lens.rule == conventions[0] else 0
    run.total = asked.samples if isinstance(asked, Precision) else None
    if source.dataset is not None:
        run.total = len(source.dataset)
        run.rows = f"{source.dataset.checksum} {source.dataset.rows.tolist()}"
    with evaluation(model):
        if backend == "ray":
            from geoattn.profiles.spread import spread

            spread(run, source, workers=workers, address=address, threads=threads)
        else:
            for number, item in enumerate(source):
                run.see(read_batch(item, model, number))
        if isinstance(asked, Precision) and source.repeatable:
            refine(run, source, asked)
    if run.samples == 0:
        raise GeoattnError("batches were empty: no sample was seen.")
    if not run.states:
        raise GeoattnError(
            f"no self-attention over two or more tokens ran; skipped: {', '.join(run.skipped) or 'nothing'}."
        )
    short = _short_samples(run, tokens)
    return finish(run, conventions, level, {
        "model": name or type(model).__name__, "data": data or source.name, "tokens": tokens, "sink": sink,
        "edges": "precision" if edges is None else asked, "precision": widest_interval(run, asked),
        "lenses": list(chosen), "smoothness_samples": smoothness_samples if "smoothness" in chosen else 0, "seed": seed,
        "resamplings": resamplings, "level": level, "threads": threads or default_threads(),
        "notes": [*source.notes, *short],
    }, started)  # fmt: skip


def _read_conventions(convention: Any) -> tuple[Convention, ...]:
    many = [convention] if isinstance(convention, (str, Convention)) else list(convention)
    if not many:
        raise GeoattnError("convention must name at least one convention; got none.")
    found = tuple(Convention.of(one) for one in many)
    names = [c.name for c in found]
    if len(set(names)) < len(names):
        raise GeoattnError(f"each convention once; got {', '.join(names)}.")
    if any(c.heads == "mean" for c in found):
        raise GeoattnError("a profile is by head; heads='mean' averages them: use ollivier_ricci on the maps.")
    return found


def _short_samples(run: Run, tokens: str) -> list[str]:
    """A note on samples with fewer than two tokens in the graph, which have no edge; an error when all are so short."""
    if not run.without_edges:
        return []
    count = len(set().union(*run.numbers.values()))
    if run.without_edges < count:
        has = "has" if run.without_edges == 1 else "have"
        return [f"{run.without_edges:,} of {count:,} samples {has} fewer than two tokens in the graph, and no edge"]
    instead = ", or tokens='all'" if tokens == "content" else ""
    raise GeoattnError(
        f"no sample has two tokens in the graph with tokens={tokens!r}, so that there is no edge: give longer"
        f" samples{instead}."
    )


def _count_samples(source: OwnBatches, model: Any) -> int | None:
    """How many samples share the precision of a head; None when that cannot be known before they are read."""
    if source.dataset is not None:
        return len(source.dataset)
    if not source.repeatable:
        return None
    return sum(read_batch(item, model, number).size for number, item in enumerate(source)) or None


def finish(
    run: Run, conventions: tuple[Convention, ...], level: float, settings: dict[str, Any], started: float
) -> Profile:
    """The profile of what a run has seen."""
    layers = tuple(name if visit == 0 else f"{name} (visit {visit + 1})" for name, visit in run.layers)
    seen = [(lens, run.of_lens(k)) for k, lens in enumerate(run.lenses)]
    curvature = {lens.convention: states for lens, states in seen if isinstance(lens, CurvatureLens)}
    first = curvature[conventions[0].name]
    heads = [first[k].means.heads for k in range(len(layers))]
    parts = [state for states in curvature.values() for state in states.values()]
    statuses: dict[str, int] = {}
    for part in parts:
        for status, number in part.statuses.items():
            statuses[status] = statuses.get(status, 0) + number
    settings |= {
        "samples": run.samples,
        # of the rows of a data set, so that it does not depend on the tokenizer; else of what the model was given
        "fingerprint": run.seen.hexdigest() if run.rows is None else hashlib.sha256(run.rows.encode()).hexdigest(),
        "maps": run.maps,
        "heads": heads,
        "edges_in_all": sum(part.edges for part in parts),
        "values": sum(part.values for part in parts),
        "max_gap": max(part.max_gap for part in parts),
        "statuses": statuses,
        "skipped": run.skipped,
        "notes": [
            *settings.get("notes", ()), *(note for lens, states in seen for note in lens.notes(list(states.values())))
        ],
        "seconds": round(time.perf_counter() - started, 3),
        "versions": {
            "geoattn": __version__, "torch": torch.__version__, "numpy": np.__version__,
            "python": platform.python_version(), "kernel": _native.instruction_set(),
        },
    }  # fmt: skip
    return Profile(
        table=make_table(seen, heads, layers, run.samples, level, {k: len(some) for k, some in run.numbers.items()}),
        layers=layers,
        conventions=conventions,
        histograms={name: tuple(states[k].histogram for k in range(len(layers))) for name, states in curvature.items()},
        resampled={
            Key(layer, lens.name, lens.convention, statistic): both
            for lens, states in seen
            for layer, state in states.items()
            for statistic, both in lens.resampled(state).items()
        },
        examples=run.examples.finish(len(layers)),
        settings=settings,
    )
