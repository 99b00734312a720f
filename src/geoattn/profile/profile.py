"""`profile`: a model and batches in, one tidy table out."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from geoattn import _native
from geoattn._version import __version__
from geoattn.capture.selection import Layers
from geoattn.curvature.layout import Count, read_count, read_edges
from geoattn.data.dataset import Dataset
from geoattn.errors import GeoattnError
from geoattn.graph.convention import Convention
from geoattn.graph.shortest_paths import default_threads
from geoattn.profile.batches import evaluation, read_batch
from geoattn.profile.examples import Examples
from geoattn.profile.feed import feed
from geoattn.profile.lenses import LENSES, ON_REQUEST, CurvatureLens
from geoattn.profile.result import Profile
from geoattn.profile.run import Run
from geoattn.profile.smoothness_lens import SmoothnessLens
from geoattn.profile.special import read_special
from geoattn.profile.table import make_table
from geoattn.profile.tally import Key, Tally
from geoattn.runs.drive import BACKENDS

__all__ = ["profile"]

if TYPE_CHECKING:
    Model = nn.Module
    Batches = Iterable[Any] | Dataset
    Tokens = Literal["all", "content"]
    Backend = Literal["local", "ray"]
else:  # checked below, with words that help
    Model = Batches = Tokens = Backend = Any


def profile(
    model: Model,
    batches: Batches,
    *,
    tokens: Tokens = "all",
    convention: str | Convention | Sequence[str | Convention] = "markov",
    edges: Any = "auto",
    layers: Layers = None,
    lenses: Any = LENSES,
    tokenizer: Any = None,
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
        Any PyTorch model with attention. Run in evaluation mode, without gradients; its mode is put back.
    batches
        An iterable of tensors, of mappings of keyword arguments, or of tuples that begin with one of them, as data
        loaders give; or a `Dataset`, with ``tokenizer`` for texts. Read once; memory does not grow with their number.
    tokens
        ``"all"``, or ``"content"``: CLS, SEP, BOS, registers and other special tokens leave the graph, and rows are
        divided by the weight that remains. They are found by ``tokenizer``, by the model's configuration, from the
        number of patches, or given as ``special``: token ids, or how many come first.
    convention
        One or several, by name or as `Convention`; the first one is that of the examples.
    edges
        ``"auto"``: all edges of maps of up to 65 tokens, 512 drawn by ``seed`` of larger ones. ``"all"``, or a number.
    layers
        Which modules, by pattern, as in `capture`. Cross-attention and steps of a generation are not graphs on one set
        of tokens; they are counted in ``settings["skipped"]``.
    lenses
        ``curvature`` is always there; ``weights``: row entropy, weight on the token itself, variance; ``spectrum``:
        second and smallest eigenvalue, Dobrushin coefficient, irreversibility. On request ``smoothness``: local
        Lipschitz constants of heads (``local_constant``, ``bound``, ``ratio``, ``r2_gamma``; see `model_smoothness`)
        and, as lens ``smoothness-layer``, of whole layers.
    smoothness_samples
        The smoothness lens looks at so many samples, the first ones, with all their tokens.
    examples
        How many samples to keep with their edges, for the report.
    resamplings, level
        Of the bootstrap over samples, from which the intervals come.
    progress
        Called with (samples done, samples in all or None).
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
    if not isinstance(model, nn.Module):
        raise GeoattnError(f"model must be a torch.nn.Module; got {type(model).__name__}. Load it with ga.load_model.")
    if not 0 < level < 1:
        raise GeoattnError(f"level must lie between 0 and 1; got {level!r}.")
    conventions = _read_conventions(convention)
    if not (isinstance(edges, str) and edges == "auto"):
        edges = "all" if read_edges(edges) is None else read_edges(edges)
    threads = None if threads is None else read_count("threads", threads, least=1)
    if backend not in BACKENDS:
        raise GeoattnError(f"backend must be {' or '.join(BACKENDS)}; got {backend!r}.")
    workers = None if workers is None else read_count("workers", workers, least=1)
    smoothness_samples = read_count("smoothness_samples", smoothness_samples, least=1)
    seed, resamplings = read_count("seed", seed, least=0), read_count("resamplings", resamplings, least=2)
    chosen = _read_lenses(lenses)
    rules = read_special(tokens, special, tokenizer, model)
    run = Run(
        model,
        rules,
        [CurvatureLens(c, edges, threads, seed) for c in conventions],
        chosen,
        threads,
        Tally(resamplings, seed),
        Examples(read_count("examples", examples, least=0), conventions[0], tokenizer, threads),
        progress,
    )
    if "smoothness" in chosen:
        run.smoothness = SmoothnessLens(model, layers, smoothness_samples, seed)
    if isinstance(batches, Dataset):
        name_of_data, run.total = f"{batches.name} ({batches.split})", len(batches)
        run.rows = f"{batches.checksum} {batches.rows.tolist()}"
        batches = feed(batches, model, tokenizer)
    else:
        name_of_data = "batches"
        if isinstance(batches, (torch.Tensor, dict, str)) or not isinstance(batches, Iterable):
            raise GeoattnError(
                f"batches must be an iterable of batches or a Dataset; got one {type(batches).__name__}: put it in a"
                " list."
            )
    with evaluation(model):
        if backend == "ray":
            from geoattn.profile.spread import spread

            spread(run, batches, layers, workers=workers, address=address)
        else:
            for number, item in enumerate(batches):
                run.see(read_batch(item, model, number), layers)
    if run.samples == 0:
        raise GeoattnError("batches were empty: no sample was seen.")
    if not run.tally.sums:
        raise GeoattnError(
            f"no self-attention over two or more tokens ran; skipped: {', '.join(run.skipped) or 'nothing'}."
        )
    return _finish(run, conventions, level, {
        "model": name or type(model).__name__, "data": data or name_of_data, "tokens": tokens, "edges": edges, "lenses":
        list(chosen), "smoothness_samples": smoothness_samples if "smoothness" in chosen else 0, "seed": seed,
        "resamplings": resamplings, "level": level, "threads": threads or default_threads(),
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


def _read_lenses(lenses: Any) -> tuple[str, ...]:
    names = [lenses] if isinstance(lenses, str) else list(lenses)
    known = (*LENSES, *ON_REQUEST)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise GeoattnError(f"unknown lens {unknown[0]!r}; expected some of {', '.join(known)}.")
    return tuple(dict.fromkeys(["curvature", *names]))


def _finish(
    run: Run, conventions: tuple[Convention, ...], level: float, settings: dict[str, Any], started: float
) -> Profile:
    layers = tuple(name if visit == 0 else f"{name} (visit {visit + 1})" for name, visit in run.layers)
    extremes = {lens.convention.name: lens.layers for lens in run.lenses}
    seen = [by_layer[k] for by_layer in extremes.values() for k in by_layer]
    statuses: dict[str, int] = {}
    for part in seen:
        for status, number in part.statuses.items():
            statuses[status] = statuses.get(status, 0) + number
    settings |= {
        "samples": run.samples,
        # of the rows of a data set, so that it does not depend on the tokenizer; else of what the model was given
        "fingerprint": run.seen.hexdigest() if run.rows is None else hashlib.sha256(run.rows.encode()).hexdigest(),
        "maps": run.maps,
        "heads": [len(run.lenses[0].layers[k].low) for k in range(len(layers))],
        "edges_in_all": sum(part.edges for part in seen),
        "values": sum(part.values for part in seen),
        "max_gap": max(part.max_gap for part in seen),
        "statuses": statuses,
        "skipped": run.skipped,
        "notes": [note for lens in run.lenses for note in lens.notes]
        + ([] if run.smoothness is None else run.smoothness.notes),
        "seconds": round(time.perf_counter() - started, 3),
        "versions": {
            "geoattn": __version__, "torch": torch.__version__, "numpy": np.__version__,
            "python": platform.python_version(), "kernel": _native.instruction_set(),
        },
    }  # fmt: skip
    return Profile(
        table=make_table(run.tally, extremes, layers, run.samples, level),
        layers=layers,
        conventions=conventions,
        histograms={
            name: tuple(by_layer[k].histogram for k in range(len(layers))) for name, by_layer in extremes.items()
        },
        resampled={
            Key(*key): np.stack([sums.totals.sum(axis=0), sums.counts.sum(axis=0)])
            for key, sums in run.tally.sums.items()
        },
        examples=run.examples.finish(len(layers)),
        settings=settings,
    )
