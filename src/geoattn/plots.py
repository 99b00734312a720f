"""Figures for papers, in matplotlib: each takes ``ax`` and gives it back."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.profiles.examples import Example
from geoattn.profiles.result import Profile
from geoattn.report.density import density, grid_of
from geoattn.report.escaping import visible
from geoattn.report.estimates import by_layer, of_row
from geoattn.report.graph_view import map_edges
from geoattn.report.heads import values_by_head
from geoattn.report.wording import number

__all__ = ["attention_graph", "compare", "distributions", "heads", "layers"]

#: Colours that colour-blind readers tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_LABELS = {
    "distance_to_one": "distance to one", "mean": "mean curvature", "negative_share": "share of negative edges",
    "row_entropy": "row entropy (nats)", "variance": "variance of the weights",
    "self_weight": "weight on the token itself",
    "std": "standard deviation of curvature", "q05": "5 % quantile of curvature", "q50": "median curvature",
}  # fmt: skip
_WEIGHTS = ("row_entropy", "variance", "self_weight")


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(4.2, 3.0), layout="constrained")[1]


def _convention(profile: Profile, convention: str | None) -> str:
    names = [c.name for c in profile.conventions]
    if convention is not None and convention not in names:
        raise GeoattnError(f"this profile has the conventions {', '.join(names)}; got {convention!r}.")
    return convention or names[0]


def _layer(profile: Profile, layer: int) -> int:
    if not -len(profile.layers) <= layer < len(profile.layers):
        raise GeoattnError(f"this profile has layers 0 to {len(profile.layers) - 1}; got {layer}.")
    return layer % len(profile.layers)


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
    name = _convention(profile, convention)
    chosen = [_layer(profile, k) for k in layers]
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
        name = _convention(profile, convention or a.conventions[0].name)
        k = None if layer is None else _layer(profile, layer)
        parts = profile.histograms[name] if k is None else [profile.histograms[name][k]]
        counts.append(np.sum([h.sum(axis=0) for h in parts], axis=0))
        value = of_row(profile, "distance_to_one", name, k).value
        labels.append(f"{visible(profile.settings['model'])}: {number(value)}")
    return _densities(counts, labels, ax)


def _densities(counts: list[np.ndarray], labels: list[str], ax: Any) -> Any:
    ax = _axes(ax)
    grid = grid_of(counts)
    for k, (c, label) in enumerate(zip(counts, labels, strict=True)):
        heights, _ = density(c, grid)
        colour = COLOURS[k % len(COLOURS)]
        label = label.replace("$", r"\$")  # no mathematics in a name
        ax.stairs(heights, grid.edges, fill=True, color=colour, alpha=0.22)
        ax.stairs(
            heights, grid.edges, color=colour, linewidth=1.3, linestyle=("-", "--", ":", "-.")[k % 4], label=label
        )
    ax.set(xlabel="curvature", ylabel="density", xlim=(grid.start, 1.0), ylim=(0, None))
    ax.legend(frameon=False, loc="upper left", fontsize="small")
    return _plain(ax)


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
    ax = _axes(ax)
    lens = "weights" if statistic in _WEIGHTS else "curvature"
    values = by_layer(profile, statistic, "" if lens == "weights" else _convention(profile, convention), lens)
    if not values:
        raise GeoattnError(f"no statistic {statistic!r} in this profile; see .to_pandas() for those there are.")
    y = np.array([e.value for e in values])
    spread = np.nan_to_num(np.array([[e.value - e.low, e.high - e.value] for e in values]).T)
    label = visible(profile.settings["model"]).replace("$", r"\$")
    ax.errorbar(np.arange(len(y)), y, yerr=np.maximum(spread, 0), marker="o", markersize=4, capsize=2.5, label=label)
    ax.set(xlabel="layer", ylabel=_LABELS.get(statistic, statistic))
    ax.xaxis.get_major_locator().set_params(integer=True)
    return _plain(ax)


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
    ax = _axes(ax)
    lens = "weights" if statistic in _WEIGHTS else "curvature"
    values = values_by_head(profile, statistic, "" if lens == "weights" else _convention(profile, convention), lens)
    if not np.isfinite(values).any():
        raise GeoattnError(f"no statistic {statistic!r} by head in this profile; see .to_pandas() for those there are.")
    image = ax.imshow(values, cmap="cividis", aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label=_LABELS.get(statistic, statistic))
    ax.set(xlabel="head", ylabel="layer")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    return ax


def attention_graph(example: Example, layer: int = 0, head: int = 0, *, edges: int = 40, ax: Any = None) -> Any:
    """The strongest edges of one map: on the patches of the image, or along the sentence.

    The width of an edge is its weight. Its colour is its curvature: blue above 0, orange below, grey at 0, full at -1
    and 1.

    Examples
    --------
    >>> import geoattn as ga
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    >>> ax = ga.plots.attention_graph(result.examples[0], layer=3, edges=12)
    >>> len(ax.patches)
    12
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not 0 <= layer < len(example.edges) or not (example.edges[layer][:, 0] == head).any():
        raise GeoattnError(f"this example has no edge in layer {layer}, head {head}.")
    ax = _axes(ax)
    scale = LinearSegmentedColormap.from_list("curvature", ["#b84300", "#b3b8bd", "#0a5aa8"])
    points = _places(example)
    order = map_edges(example, layer, head)[:edges]
    heaviest = float(example.weights[layer][order].max())
    if _on_image(example):
        assert example.image is not None
        assert example.grid is not None
        rows, columns, _ = example.grid
        pixels = example.image[..., 0] if example.image.shape[2] == 1 else example.image
        ax.imshow(pixels, cmap="gray", alpha=0.4, extent=(0, columns, rows, 0), interpolation="nearest")
    for e in order[::-1]:
        _, i, j = (int(v) for v in example.edges[layer][e])
        strength = float(np.sqrt(example.weights[layer][e] / heaviest))
        kappa = float(example.kappa[layer][e])
        colour = scale((np.clip(kappa, -1, 1) + 1) / 2) if np.isfinite(kappa) else "#888888"
        curve = Path(_curve(example, points[i], points[j]), [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        width, alpha = 0.4 + 2.8 * strength, 0.5 + 0.45 * strength
        ax.add_patch(PathPatch(curve, fill=False, edgecolor=colour, linewidth=width, alpha=alpha, capstyle="round"))
    valid = [k for k, v in enumerate(example.valid) if v]
    ax.plot(*points[valid].T, "o", color="#222222", markersize=2.5, zorder=3)
    _frame(ax, example, points, valid)
    return ax


def _on_image(example: Example) -> bool:
    return example.image is not None and example.grid is not None


def _curve(example: Example, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Control points: slightly bent on an image; along a sentence an arch, lower between near tokens."""
    if _on_image(example):
        bend = 0.16 * np.array([a[1] - b[1], b[0] - a[0]])
        return np.array([a, a + (b - a) / 3 + bend, a + 2 * (b - a) / 3 + bend, b])
    up = np.array([0.0, 1.3 * (abs(b[0] - a[0]) / max(len(example.tokens) - 1, 1)) ** 0.7])
    return np.array([a, a + up, b + up, b])


def _places(example: Example) -> np.ndarray:
    n = len(example.tokens)
    if not _on_image(example) or example.grid is None:
        return np.stack([np.arange(n), np.zeros(n)], axis=1).astype(np.float64)
    _, columns, leading = example.grid
    patch = np.arange(n) - leading
    points = np.stack([patch % columns + 0.5, patch // columns + 0.5], axis=1)
    points[:leading, 0] = columns * (np.arange(leading) + 0.5) / max(leading, 1)
    points[:leading, 1] = -0.5
    return points


def _frame(ax: Any, example: Example, points: np.ndarray, valid: list[int]) -> None:
    if example.image is not None and example.grid is not None:
        rows, columns, leading = example.grid
        ax.set(xlim=(0, columns), ylim=(rows, -1 if leading else 0), aspect="equal")
        for k in range(leading if leading < 4 else 0):
            beside = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
            ax.annotate(example.tokens[k], points[k], **beside)
        ax.axis("off")
        return
    longest = max(valid) if valid else 1
    ax.set(xlim=(-0.6, longest + 0.6), ylim=(-0.03, 1.02))
    names = [visible(example.tokens[k], 16) for k in valid]
    names = [(name if len(name) <= 16 else f"{name[:15]}…").replace("$", r"\$") for name in names]
    ax.set_xticks(valid, names, rotation=45, ha="right", rotation_mode="anchor", fontsize="small")
    ax.set_yticks([])
    ax.spines[["left", "right", "top"]].set_visible(False)


def _plain(ax: Any) -> Any:
    ax.spines[["top", "right"]].set_visible(False)
    return ax
