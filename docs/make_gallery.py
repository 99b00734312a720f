"""Draw docs/images/gallery.png and fill the table of docs/gallery.md: python docs/make_gallery.py.

Three complete graphs whose heavy edges form a tree, a grid and a complete graph: the idea of Figure 2 of the Ricci
paper, with curvature computed.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize

import geoattn as ga

matplotlib.use("Agg")

HEAVY, LIGHT = 1.0, 0.002  # weight of an edge of the shape, and of all the others, before rows are normalised
SCALE = LinearSegmentedColormap.from_list("curvature", ["#b84300", "#b3b8bd", "#0a5aa8"])


def binary_tree(depth: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Places and edges of a binary tree."""
    places, edges = [], []
    for level in range(depth + 1):
        for k in range(2**level):
            node = len(places)
            places.append(((k + 0.5) / 2**level, -level / depth))
            if level:
                edges.append(((node - 1) // 2, node))
    return np.array(places), edges


def grid(side: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Places and edges of a square grid."""
    places = np.array([(k % side, -(k // side)) for k in range(side**2)]) / (side - 1)
    right = [(k, k + 1) for k in range(side**2) if k % side < side - 1]
    return places, right + [(k, k + side) for k in range(side**2 - side)]


def complete(n: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Places and edges of a complete graph."""
    angle = 2 * np.pi * (np.arange(n) + 0.25) / n
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1) / 2 + [0.5, -0.5]
    return places, [(i, j) for i in range(n) for j in range(i)]


GRAPHS = {"tree": binary_tree(3), "grid": grid(4), "complete": complete(8)}


def attention(n: int, edges: list[tuple[int, int]]) -> np.ndarray:
    """Row-stochastic weights: heavy on the edges, light elsewhere, nothing on the token itself."""
    weights = np.full((n, n), LIGHT)
    for i, j in edges:
        weights[i, j] = weights[j, i] = HEAVY
    np.fill_diagonal(weights, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def heavy_curvature(name: str, convention: str = "markov") -> np.ndarray:
    """Curvature of each heavy edge."""
    places, edges = GRAPHS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)  # all edges alike: that is the point here
        kappa = ga.ollivier_ricci(attention(len(places), edges), convention).kappa
    return np.array([kappa[i, j] for i, j in edges])


def draw(path: Path) -> None:
    """The three graphs, coloured by curvature under the convention markov."""
    figure, panels = pyplot.subplots(1, 3, figsize=(9.6, 4.5), layout="constrained")
    for ax, (name, (places, edges)) in zip(panels, GRAPHS.items(), strict=True):
        n = len(places)
        for i in range(n):
            for j in range(i):
                ax.plot(*places[[i, j]].T, color="#dddddd", linewidth=0.5, zorder=1)
        values = heavy_curvature(name)
        for (i, j), kappa in zip(edges, values, strict=True):
            colour = SCALE((np.clip(kappa, -1, 1) + 1) / 2)
            ax.plot(*places[[i, j]].T, color=colour, linewidth=3.5, solid_capstyle="round", zorder=2)
        ax.plot(*places.T, "o", color="#222222", markersize=5, zorder=3)
        ax.set_title(f"{name}: mean curvature {values.mean():.2f}".replace("-", "−"), fontsize=11)
        ax.set(xlim=(-0.08, 1.08), ylim=(-1.08, 0.08), aspect="equal")
        ax.axis("off")
    colours = ScalarMappable(Normalize(-1, 1), SCALE)
    bar = figure.colorbar(colours, ax=panels, location="bottom", shrink=0.4, aspect=30, ticks=[-1, 0, 1])
    bar.outline.set_visible(False)
    bar.set_label("curvature of the edge")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def table() -> str:
    """Mean curvature of the heavy edges under every preset, in Markdown."""
    lines = ["| convention | " + " | ".join(GRAPHS) + " |", "| --- |" + " --- |" * len(GRAPHS)]
    for convention in ("markov", "hop", "grc-0.6", "grc-0.5"):
        values = (heavy_curvature(name, convention).mean() for name in GRAPHS)
        lines.append(f"| `{convention}` | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    folder = Path(__file__).parent
    draw(folder / "images" / "gallery.png")
    text = (folder / "gallery.md").read_text(encoding="utf-8")
    before, rest = text.split("<!-- table -->\n", 1)
    after = rest.split("<!-- end -->", 1)[1]
    (folder / "gallery.md").write_text(f"{before}<!-- table -->\n{table()}\n<!-- end -->{after}", encoding="utf-8")
