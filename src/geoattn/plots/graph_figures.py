"""Figures of one attention graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.visible import visible
from geoattn.plots.axes import own_axes
from geoattn.profiles.examples import Example
from geoattn.report.graph_view import map_edges

__all__ = ["attention_graph"]


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
    ax = own_axes(ax)
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
