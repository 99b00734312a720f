"""The figure of the study mean-field: one row of curves, one of spheres, one of masses and energies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["draw"]

_BLUE, _RED, _GREEN = "#0072B2", "#D55E00", "#009E73"


def draw(pairs: list[tuple[dict[str, Any], Any]]) -> Any:
    """What the experiments gave; panels of experiments that did not run stay empty."""
    from matplotlib.figure import Figure

    first: dict[str, Any] = {}
    every: dict[str, list[Any]] = {}
    for config, result in pairs:
        first.setdefault(config["figure"], result)
        every.setdefault(config["figure"], []).append(result)
    figure = Figure(figsize=(12, 8.4), layout="constrained")
    grid = figure.add_gridspec(3, 4)
    if "fig1" in first:
        _sphere(figure.add_subplot(grid[0, 0], projection="3d"), first["fig1"]["tokens"], "1: one token, diag(1, 3, 4)")
    if "fig2" in first:
        _split(figure.add_subplot(grid[0, 1]), every["fig2"])
    if "fig4" in first:
        _four(figure.add_subplot(grid[0, 2]), first["fig4"]["table"])
    if "fig5" in first:
        _density(figure.add_subplot(grid[0, 3]), first["fig5"]["table"])
    if "tokens" in first.get("fig3", {}):
        titles = {"Id": "3: D = I", "PPd": "3: diag(1, 1/4, 1)", "Sd": "3: diag(1, 0, 1)", "VSd": "3: diag(0, 0, 1)"}
        for k, (name, title) in enumerate(titles.items()):
            ax = figure.add_subplot(grid[1, k], projection="3d")
            _sphere(ax, {name: first["fig3"]["tokens"][name]}, title)
    if "fig6" in first:
        _masses(figure.add_subplot(grid[2, :2]), every["fig6"])
    if "fig7" in first:
        _indefinite(figure.add_subplot(grid[2, 2:]), first["fig7"]["table"])
    return figure


def _sphere(ax: Any, tokens: dict[str, Any], title: str) -> None:
    turn = np.linspace(0, 2 * np.pi, 100)
    for height in (-0.5, 0.0, 0.5):
        width = math.sqrt(1 - height**2)
        ax.plot(width * np.cos(turn), width * np.sin(turn), height, color="0.8", linewidth=0.6)
    for x in tokens.values():
        ax.scatter(*np.array(x).T, s=6, color=_BLUE)
    ax.set(title=title, xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8), xticks=(), yticks=(), zticks=())
    ax.set_xlabel("e1", labelpad=-14)
    ax.set_ylabel("e2", labelpad=-14)
    ax.set_zlabel("e3", labelpad=-14)
    ax.set_box_aspect((1, 1, 1))


def _split(ax: Any, results: list[Any]) -> None:
    for name, colour, label in (("single", _BLUE, "one cluster"), ("pair", _RED, "antipodal pair")):
        shares = np.array([r["table"][name] for r in results])
        ax.plot(results[0]["table"]["d1"], shares.mean(0), color=colour, marker="o", markersize=3, label=label)
        ax.fill_between(results[0]["table"]["d1"], shares.min(0), shares.max(0), color=colour, alpha=0.2, linewidth=0)
    for threshold in (math.tanh(1), 1.19968):
        ax.axvline(threshold, color="0.5", linestyle="--", linewidth=1)
    ax.set(title="2: diag(d1, 1)", xlabel="d1", ylabel="share of runs")
    ax.legend(fontsize="small")


def _four(ax: Any, table: dict[str, Any]) -> None:
    from geoattn.dynamics.closed_forms import four_particles

    values = np.linspace(0.5, 10, 100)
    ax.plot(values, [four_particles(1.0, v)[0] for v in values], color="0.5", label="closed form")
    ax.plot(table["d2"], table["a2"], "o", color=_BLUE, markersize=4, label="tokens")
    ax.set(title="4: four tokens, diag(1, d2)", xlabel="d2", ylabel="a$^2$")
    ax.legend(fontsize="small")


def _density(ax: Any, table: dict[str, Any]) -> None:
    from scipy.special import iv

    from geoattn.dynamics.closed_forms import first_order_density

    eps = np.linspace(-0.1, 0.3, 81)
    eps = eps[np.abs(eps) > 1e-9]
    guess = eps**2 / 5 + math.e / 2 * eps
    ax.axhline(-first_order_density(2) / 2, color="0.5", linestyle="--", label="exact at eps = 0")
    ax.plot(eps, 2 * iv(1, guess) / iv(0, guess) / eps, color=_RED, label="conjecture in the code")
    ax.plot(table["eps"], table["mode"], "o", color=_BLUE, markersize=4, label="minimiser")
    ax.set(title="5: density, diag(1, 1 + eps)", xlabel="eps", ylabel="second mode / eps", ylim=(1, 2.4))
    ax.legend(fontsize="small", loc="lower right")


def _masses(ax: Any, results: list[Any]) -> None:
    lighter, energy = (np.array([v for r in results for v in r[name]]) for name in ("lighter", "energy"))
    ax.plot(lighter, energy, "o", color=_BLUE, markersize=4, alpha=0.5, label="runs")
    p = np.linspace(min(0.35, lighter.min()), 0.5, 50)
    pair = (p**2 + (1 - p) ** 2) * math.exp(-4) + 2 * p * (1 - p) * math.exp(4)
    ax.plot(p, pair, color="0.5", linewidth=1, label="antipodal pair with these masses")
    ax.axhline(math.cosh(4), color=_RED, linestyle="--", linewidth=1, label="maximum, cosh 4")
    ax.set(title="6: -diag(1, 3, 4)", xlabel="mass of the lighter cluster", ylabel="energy")
    ax.legend(fontsize="small", loc="lower right")


def _indefinite(ax: Any, table: dict[str, Any]) -> None:
    ax.plot(table["d"], table["optimum"], color="0.75", linewidth=5, label="maximum")
    for name, colour in (("point", _BLUE), ("pair e1", _RED), ("pair e2", _GREEN)):
        ax.plot(table["d"], table[name], color=colour, linewidth=1.3, label=name)
    ax.axvline(math.log(math.cosh(1)), color="0.5", linestyle="--", linewidth=1)
    ax.set(title="7: diag(-1, d)", xlabel="d", ylabel="energy")
    ax.legend(fontsize="small")
