"""Figures of a profile: distributions, layers, heads, two models, all conventions."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.plots.axes import COLOURS, LABELS, convention_of, label_of, layer_of, lens_of, own_axes, plain
from geoattn.profiles.result import Profile
from geoattn.report.density import density, grid_of
from geoattn.report.estimates import by_head, by_layer, of_row
from geoattn.report.heads import values_by_head
from geoattn.report.wording import number

__all__ = ["compare", "conventions", "distributions", "heads", "layers", "relation", "ridges"]


def distributions(
    profile: Profile, layers: tuple[int, ...] = (0, -1), *, convention: str | None = None, ax: Any = None
) -> Any:
    """Density of curvature in some layers (the first and the last), with the distance to one in the legend.

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn import plots
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4))
    >>> [text.get_text() for text in plots.distributions(result).get_legend().get_texts()]
    ['layer 0: 0...', 'layer 7: 0...']
    """
    name = convention_of(profile, convention)
    chosen = [layer_of(profile, k) for k in layers]
    counts = [profile.histograms[name][k].sum(axis=0) for k in chosen]
    labels = [f"layer {k}: {number(of_row(profile, 'distance_to_one', name, k).value)}" for k in chosen]
    return _densities(counts, labels, ax)


def compare(a: Profile, b: Profile, layer: int | None = -1, *, convention: str | None = None, ax: Any = None) -> Any:
    """The density of curvature of two models in one layer, with the distance to one in the legend.

    ``layer`` is the last by default; None is all layers.

    Examples
    --------
    >>> import geoattn as ga
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    >>> ax = ga.plots.compare(result, result, layer=0)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['LViT: 0...', 'LViT: 0...']
    """
    counts, labels = [], []
    for profile in (a, b):
        name = convention_of(profile, convention or a.conventions[0].name)
        k = None if layer is None else layer_of(profile, layer)
        parts = profile.histograms[name] if k is None else [profile.histograms[name][k]]
        counts.append(np.sum([h.sum(axis=0) for h in parts], axis=0))
        value = of_row(profile, "distance_to_one", name, k).value
        labels.append(f"{label_of(profile.settings['model'])}: {number(value)}")
    return _densities(counts, labels, ax)


def _densities(counts: list[np.ndarray], labels: list[str], ax: Any) -> Any:
    ax = own_axes(ax)
    grid = grid_of(counts)
    for k, (c, label) in enumerate(zip(counts, labels, strict=True)):
        heights, _ = density(c, grid)
        colour = COLOURS[k % len(COLOURS)]
        ax.stairs(heights, grid.edges, fill=True, color=colour, alpha=0.22)
        ax.stairs(
            heights, grid.edges, color=colour, linewidth=1.3, linestyle=("-", "--", ":", "-.")[k % 4], label=label
        )
    ax.set(xlabel="curvature", ylabel="density", xlim=(grid.start, 1.0), ylim=(0, None))
    ax.legend(frameon=False, loc="upper left", fontsize="small")
    return plain(ax)


def layers(
    profile: Profile, statistic: str = "distance_to_one", *, convention: str | None = None, ax: Any = None
) -> Any:
    """A statistic by layer, with its interval over samples.

    Examples
    --------
    >>> import geoattn as ga
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    >>> ax = ga.plots.layers(result, "row_entropy")
    >>> ax.get_xlabel(), ax.get_ylabel(), len(ax.lines[0].get_xdata())
    ('layer', 'row entropy (nats)', 8)
    """
    ax = own_axes(ax)
    lens, name = lens_of(profile, statistic, convention)
    values = by_layer(profile, statistic, name, lens)
    y = np.array([e.value for e in values])
    spread = np.nan_to_num(np.array([[e.value - e.low, e.high - e.value] for e in values]).T)
    label = label_of(profile.settings["model"])
    ax.errorbar(np.arange(len(y)), y, yerr=np.maximum(spread, 0), marker="o", markersize=4, capsize=2.5, label=label)
    ax.set(xlabel="layer", ylabel=LABELS.get(statistic, statistic))
    ax.xaxis.get_major_locator().set_params(integer=True)
    return plain(ax)


def heads(
    profile: Profile, statistic: str = "distance_to_one", *, convention: str | None = None, ax: Any = None
) -> Any:
    """A statistic by layer and head, as a heat map with its scale.

    Examples
    --------
    >>> import geoattn as ga
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    >>> ga.plots.heads(result).images[0].get_array().shape  # eight layers of one head
    (8, 1)
    """
    ax = own_axes(ax)
    lens, name = lens_of(profile, statistic, convention)
    values = values_by_head(profile, statistic, name, lens)
    if not np.isfinite(values).any():
        raise GeoattnError(f"no statistic {statistic!r} by head in this profile; see .to_pandas() for those there are.")
    image = ax.imshow(values, cmap="cividis", aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label=LABELS.get(statistic, statistic))
    ax.set(xlabel="head", ylabel="layer")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    return ax


def ridges(profile: Profile, *, convention: str | None = None, ax: Any = None) -> Any:
    """The density of curvature in every layer, the first at the top; on the right the distance to one.

    Examples
    --------
    >>> import geoattn as ga
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    >>> [tick.get_text() for tick in ga.plots.ridges(result).get_yticklabels()][:2]
    ['layer 0', 'layer 1']
    """
    ax = own_axes(ax)
    name = convention_of(profile, convention)
    counts = [h.sum(axis=0) for h in profile.histograms[name]]
    grid = grid_of(counts)
    top = max(float(density(c, grid)[0].max()) for c in counts) or 1.0
    last = len(counts) - 1
    for k, c in enumerate(counts):
        heights, _ = density(c, grid)
        base = last - k
        tall = base + 0.92 * heights / (max(float(heights.max()), 0.5 * top) or 1.0)
        ax.stairs(tall, grid.edges, baseline=base, fill=True, color=COLOURS[0], alpha=0.15 + 0.5 * k / max(1, last))
        ax.stairs(tall, grid.edges, baseline=base, color=COLOURS[0], linewidth=0.9)
        value = number(of_row(profile, "distance_to_one", name, k).value)
        ax.annotate(
            value, (1.0, base + 0.25), (4, 0), textcoords="offset points", fontsize="small", annotation_clip=False
        )
    ax.set(xlabel="curvature", xlim=(grid.start, 1.0), ylim=(-0.05, last + 1.05))
    ax.set_yticks([last - k for k in range(len(counts))], [f"layer {k}" for k in range(len(counts))])
    return plain(ax)


def conventions(profile: Profile, statistic: str = "distance_to_one", *, ax: Any = None) -> Any:
    """A statistic of the curvature by layer under every convention of the profile.

    Conventions measure different things: compare the shapes of the lines, not their heights.

    Examples
    --------
    >>> import geoattn as ga
    >>> model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    >>> ax = ga.plots.conventions(ga.profile(model, data, convention=["markov", "hop"]))
    >>> [line.get_label() for line in ax.lines]
    ['markov', 'hop']
    """
    ax = own_axes(ax)
    for k, convention in enumerate(profile.conventions):
        values = [e.value for e in by_layer(profile, statistic, convention.name)]
        if not values:
            raise GeoattnError(f"no statistic {statistic!r} of the curvature in this profile; see .to_pandas().")
        style = {"color": COLOURS[k % len(COLOURS)], "linestyle": ("-", "--", ":", "-.")[k % 4]}
        ax.plot(range(len(values)), values, marker="os^D"[k % 4], markersize=4, label=convention.name, **style)
    ax.set(xlabel="layer", ylabel=LABELS.get(statistic, statistic))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize="small")
    return plain(ax)


def relation(
    profile: Profile,
    x: str = "row_entropy",
    y: str = "distance_to_one",
    *,
    convention: str | None = None,
    ax: Any = None,
) -> Any:
    """Two statistics against each other, one point a head, coloured from the first layer to the last.

    With the lenses that were measured: ``second_eigenvalue``, ``local_constant``, ``heaviest_token`` and the like.

    Examples
    --------
    >>> import geoattn as ga
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    >>> ax = ga.plots.relation(result, "second_eigenvalue")
    >>> ax.get_xlabel(), len(ax.collections[0].get_offsets())
    ('second eigenvalue', 8)
    """
    ax = own_axes(ax)
    sides = []
    for statistic in (x, y):
        lens, name = lens_of(profile, statistic, convention)
        sides.append(by_head(profile, statistic, name, lens))
    places = [place for place in sides[0] if place in sides[1]]
    points = np.array([[side[place].value for side in sides] for place in places])
    shown = ax.scatter(*points.T, c=[layer for layer, _ in places], cmap="viridis", s=16)
    ax.figure.colorbar(shown, ax=ax, label="layer")
    ax.set(xlabel=LABELS.get(x, x), ylabel=LABELS.get(y, y))
    return plain(ax)
