"""The figure of the study lipschitz-growth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["draw"]


def draw(
    pairs: list[tuple[dict[str, Any], Any]], models: dict[str, list[int]], by_length: Callable[..., Any],
    exponents: Callable[..., Any], titles: dict[str, str],
) -> Any:  # fmt: skip
    """A panel per model, one for the exponents, one for adversarial tokens and the bounds."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    columns = len(models) + 2
    figure = Figure(figsize=(3.5 * columns, 3.6), layout="constrained")
    axes = figure.subplots(1, columns)
    colours = colormaps["viridis"]
    for ax, (model, layers) in zip(axes, models.items(), strict=False):
        last = max(1, len(layers) - 1)
        for k, layer in enumerate(layers):
            n, values = by_length(pairs, model, layer, "value")
            for text in values:
                ax.plot(n, text, ".", ms=2.5, color=colours(0.9 * k / last), alpha=0.5)
            ax.plot(
                n, np.exp(np.nanmean(np.log(values), axis=0)), color=colours(0.9 * k / last), label=f"layer {layer}"
            )
        n, values = by_length(pairs, model, layers[0], "value")
        start = 0.55 * np.nanmin(values[:, 0])
        for power, style in ((0.25, "--"), (0.5, ":")):
            label = "$n^{1/4}$" if power == 0.25 else "$n^{1/2}$"
            ax.plot(n, start * (n / n[0]) ** power, style, color="black", lw=1)
            ax.annotate(label, (n[-1], start * (n[-1] / n[0]) ** power), fontsize=8, ha="right", va="bottom")
        _logarithmic(ax, n)
        ax.set(title=titles.get(model, model), xlabel="tokens n", ylabel="local Lipschitz constant")
        ax.legend(fontsize=6.5, ncols=2)
    _exponents(axes[-2], pairs, models, exponents, titles)
    _adversarial(axes[-1], pairs)
    return figure


def _exponents(ax: Any, pairs: Any, models: dict[str, list[int]], exponents: Callable[..., Any], titles: Any) -> None:
    for k, (model, layers) in enumerate(models.items()):
        for shift, name, face in ((0.0, "value", None), (0.08, "printed", "none")):
            found = [exponents(pairs, model, layer, name) for layer in layers]
            mean = np.array([each.mean() for each, _ in found])
            bars = np.abs([np.quantile(drawn, [0.025, 0.975]) for _, drawn in found] - mean[:, None]).T
            label = titles.get(model, model).split(" ")[0]
            label = label if name == "value" else f"{label}, public code"
            places = np.array(layers) + 0.2 * k + shift
            ax.errorbar(places, mean, bars, fmt="os"[k % 2], ms=4, capsize=2, label=label, color=f"C{k}", mfc=face)
    for power, text in ((0.25, "1/4"), (0.5, "1/2")):
        ax.axhline(power, color="black", lw=1, ls="--" if power == 0.25 else ":")
        ax.annotate(text, (1, power), xycoords=("axes fraction", "data"), fontsize=8, ha="right", va="bottom")
    ax.axhline(0, color="grey", lw=0.6)
    ax.set(title="exponent by layer, 95 % over texts", xlabel="layer", ylabel="exponent of n")
    ax.set_ylim(top=ax.get_ylim()[1] + 0.2)  # room for the legend
    ax.legend(fontsize=6.5, loc="upper left", ncols=2)


def _adversarial(ax: Any, pairs: Any) -> None:
    chosen = [(c, r) for c, r in pairs if c["kind"] == "adversarial"]
    n = np.array([2])
    for k, (_, result) in enumerate(chosen):
        n = np.array([row["n"] for row in result["rows"]])
        for name, style, label in (("value", "o-", "adversarial, V = I"), ("upper", "^:", "discrete upper bound"),
                                   ("lower", "k--", "discrete lower bound")):  # fmt: skip
            y = [row[name] for row in result["rows"]]
            colour = {} if "k" in style else {"color": {"value": "C3", "upper": "C4"}[name]}
            ax.plot(n - 1, y, style, ms=4, lw=1, alpha=0.7, label=label if k == 0 else None, **colour)
    _logarithmic(ax, n - 1)
    ax.set(title="adversarial tokens", xlabel="n - 1", ylabel="Lipschitz constant")
    ax.legend(fontsize=6.5)


def _logarithmic(ax: Any, n: np.ndarray) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(n, [str(int(v)) for v in n], fontsize=7)
