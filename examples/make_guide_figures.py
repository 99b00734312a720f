"""The figures of the user guide that need nothing to download: python examples/make_guide_figures.py"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import geoattn as ga

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
GREY, BLUE, ORANGE = "#999999", "#0a5aa8", "#b84300"


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=110, bbox_inches="tight")
    plt.close(figure)


def capture() -> None:
    """The maps of all layers on one image."""
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=1)
    with ga.capture(model) as record, torch.no_grad():
        model(digits.pixels())
    figure, panels = plt.subplots(1, 9, figsize=(11, 1.8), layout="constrained")
    panels[0].imshow(digits.images[0].squeeze(), cmap="gray_r")
    panels[0].set_title("input", fontsize=9)
    for layer, ax in enumerate(panels[1:]):
        ax.imshow(record[layer].attention()[0, 0], cmap="cividis", vmin=0, vmax=0.5)
        ax.set_title(f"record[{layer}]", fontsize=9)
    for ax in panels:
        ax.set_xticks([])
        ax.set_yticks([])
    save(figure, "capture")


def spectrum() -> None:
    """The second eigenvalue and the distance to one of each map of a model."""
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=64)
    table = ga.features(model, digits)
    figure, ax = plt.subplots(figsize=(6.4, 3.8))
    for layer in range(8):
        place = f"L{layer:02d}.H0"
        x, y = table[f"{place}.spectrum.second_eigenvalue"], table[f"{place}.curvature.distance_to_one"]
        ax.plot(x, y, "o", markersize=3, alpha=0.7, color=plt.get_cmap("cividis")(layer / 7), label=f"layer {layer}")
    ax.set(xlabel="second eigenvalue of the map", ylabel="distance to one (markov)")
    ax.legend(frameon=False, fontsize=7, ncols=2)
    save(figure, "spectrum")


def robustness() -> None:
    """Accuracy drops of the embedded model."""
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test")
    figure, ax = plt.subplots(figsize=(6.4, 3.4))
    ga.plots.accuracy_drops(ga.robustness(model, digits, ga.perturbations.image_perturbations(8)), ax=ax)
    save(figure, "robustness")


def scale() -> None:
    """Seconds of a map by its number of tokens, by the model of docs/scale.md."""
    n = np.geomspace(16, 8192, 60)
    edge = np.select(
        [n <= 257, n < 1024], [2.22e-9 * n**2 + 1.11e-12 * n**3, 2.16e-9 * n**2 + 7.1e-12 * n**3], 5.62e-9 * n**2
    )
    prepare = 6.18e-8 * n**2 + 3.09e-10 * n**3
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    for count, colour in ((16, BLUE), (512, ORANGE)):
        ax.loglog(n, prepare + count * edge, color=colour, label=f"{count} edges")
    ax.loglog(n, prepare, color=GREY, linestyle=":", label="preparation alone")
    ax.set(xlabel="tokens of the map", ylabel="seconds on one thread")
    ax.legend(frameon=False)
    save(figure, "scale")


def extending() -> None:
    """What a user can add, and where it takes its place."""
    boxes = ["your model\nand data", "attention", "graph", "curvature", "profile", "report,\nfigures"]
    own = {1: "your regulariser,\nyour intervention", 2: "your convention", 4: "your lens", 5: "your section"}
    figure, ax = plt.subplots(figsize=(9.5, 2.2))
    for k, text in enumerate(boxes):
        ax.text(k, 0, text, ha="center", va="center", bbox={"boxstyle": "round,pad=0.5", "fc": "#eef2f7", "ec": GREY})
        if k:
            ax.annotate("", (k - 0.38, 0), (k - 0.62, 0), arrowprops={"arrowstyle": "->", "color": GREY})
        if k in own:
            ax.annotate(
                own[k], (k, -0.35), (k, -1.05), ha="center", va="center", color=ORANGE,
                arrowprops={"arrowstyle": "->", "color": ORANGE},
            )  # fmt: skip
    ax.set(xlim=(-0.6, 5.6), ylim=(-1.4, 0.5))
    ax.axis("off")
    save(figure, "extending")


if __name__ == "__main__":
    for draw in (capture, spectrum, robustness, scale, extending):
        draw()
