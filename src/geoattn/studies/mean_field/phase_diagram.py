"""The phase diagram of clustering: when tokens come together, against beta, in six dimensions, with the theory."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.study import Study

__all__ = ["STUDY", "trial"]

_DIMS = (2, 8, 32, 128, 512, 1024)
_CLOSE = 0.02  # relative distance of the level curve from the theory that counts as agreement
_MODERATE = 5.0  # beta up to which it is asked for
_HIGH = 512  # dimension at which it is asked for
_PICTURE = 30.0  # time up to which the picture goes
_MARKS = np.linspace(0.0, _PICTURE, 61)


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """One dimension at one beta: the time at which half of the pairs are together, and their share over time."""
    from geoattn.dynamics.closed_forms import clustering_time
    from geoattn.dynamics.phase import phase_diagram

    beta, n = config["beta"], config["n"]
    # beyond the picture as far as it takes to see how late the tokens are
    until = max(_PICTURE, 1.5 * clustering_time(beta, n))
    diagram = phase_diagram(
        [beta], [config["d"]], n=n, runs=config["runs"], until=until, step=config["step"], seed=config["seed"]
    )
    level, spread = float(diagram.level()[0, 0]), float(diagram.spread[0, 0])
    share = np.interp(_MARKS, diagram.t, diagram.probability[0, 0])
    return {
        "time": round(level, 9) if np.isfinite(level) else None,
        "spread": round(spread, 9) if np.isfinite(spread) else None,
        "curve": round(float(diagram.curve[0]), 9), "until": round(until, 9),
        "share": [round(float(s), 4) for s in share],
    }  # fmt: skip


def _sizes(size: str) -> list[dict[str, Any]]:
    """Small is the whole diagram with 64 runs; paper has the 1,024 runs and 90 values of beta of the publication."""
    if size == "smoke":
        dims, betas, runs = (4, 64), [1.0, 2.0], 4
    elif size == "small":
        dims, betas, runs = _DIMS, np.linspace(0.1, 9.0, 20).tolist(), 64
    else:
        dims, betas, runs = _DIMS, np.linspace(0.1, 9.0, 90).tolist(), 1024
    n = 8 if size == "smoke" else 32
    return [
        {"d": d, "beta": round(beta, 6), "n": n, "runs": runs, "step": 0.1, "seed": 0} for d in dims for beta in betas
    ]


def _table(pairs: list[tuple[dict[str, Any], Any]]) -> Any:
    import pandas as pd

    rows = []
    for config, result in pairs:
        late = None if result["time"] is None else result["time"] / result["curve"] - 1
        row = {"d": config["d"], "beta": config["beta"], "time": result["time"], "spread": result["spread"]}
        rows.append({**row, "curve": result["curve"], "excess": late, "until": result["until"]})
    return pd.DataFrame(rows)


def _excess(pairs: list[tuple[dict[str, Any], Any]], d: int, low: float, high: float) -> np.ndarray:
    """Relative delay against the theory at one dimension for beta in (low, high]; the time limit where there is none.

    Runs that are not together by the end are at least as late as the end.
    """
    chosen = [(c, r) for c, r in pairs if c["d"] == d and low < c["beta"] <= high]
    return np.array([(r["time"] or r["until"]) / r["curve"] - 1 for _, r in chosen])


def _verdict(pairs: list[tuple[dict[str, Any], Any]]) -> list[Finding]:
    n = pairs[0][0]["n"]
    dims = sorted({c["d"] for c, _ in pairs})
    close = _HIGH if _HIGH in dims else dims[-1]
    measure = "0.02 - |time / theory - 1|, over the values of beta"
    found = [
        judge(
            "nearly orthogonal tokens cluster at the time of the equiangular equation, to 2 %",
            f"n = {n}, d = {close}, beta <= 5", _CLOSE - np.abs(_excess(pairs, close, 0.0, _MODERATE)), measure=measure,
        )
    ]  # fmt: skip
    above = _excess(pairs, close, _MODERATE, np.inf)
    if len(above):
        found.append(
            judge(
                "beyond beta = 5 tokens in a finite dimension cluster later than the equiangular equation says",
                f"n = {n}, d = {close}, beta > 5", above, measure="time / theory - 1, over the values of beta",
            )
        )  # fmt: skip
    if len(dims) > 1:
        nearer = np.abs(_excess(pairs, dims[0], 0.0, np.inf)) - np.abs(_excess(pairs, dims[-1], 0.0, np.inf))
        found.append(
            judge(
                "the level curve comes nearer to the theory as the dimension grows",
                f"n = {n}, d = {dims[0]} and {dims[-1]}", nearer,
                measure="|time / theory - 1| in the low dimension minus that in the high one",
            )
        )  # fmt: skip
    return found


def _figure(pairs: list[tuple[dict[str, Any], Any]]) -> Any:
    from matplotlib.figure import Figure

    dims = sorted({c["d"] for c, _ in pairs})
    columns = min(3, len(dims))
    rows = -(-len(dims) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.8, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    image: Any = None
    for ax, d in zip(axes.ravel(), dims, strict=False):
        own = sorted(((c["beta"], r) for c, r in pairs if c["d"] == d), key=lambda item: item[0])
        betas = [beta for beta, _ in own]
        image = ax.pcolormesh(
            betas, _MARKS, np.array([r["share"] for _, r in own]).T, cmap="viridis", vmin=0, vmax=1, shading="nearest"
        )
        ax.plot(betas, [r["curve"] for _, r in own], color="white", linestyle="--", label="theory, d to infinity")
        times = [np.nan if r["time"] is None else r["time"] for _, r in own]
        ax.plot(betas, times, color="#D55E00", marker="o", markersize=3, linewidth=1, label="half of the pairs")
        ax.set(title=f"d = {d}", ylim=(0, _PICTURE))
    for ax in axes[-1]:
        ax.set_xlabel("beta")
    for ax in axes[:, 0]:
        ax.set_ylabel("time")
    axes[0, 0].legend(fontsize="small", loc="upper left", facecolor="#888888", labelcolor="white", framealpha=0.6)
    figure.colorbar(image, ax=axes, label="share of pairs with cosine above 0.999")
    return figure


STUDY = Study(
    "phase-diagram", 1, "geoattn.studies.mean_field.phase_diagram:trial", _sizes, _table, _figure, _verdict,
    paper="mean-field", place="figure 3 and theorem 6.9 of Geshkovski et al. 2023 (arXiv 2312.10794), cited there",
    how="Uniform tokens on the sphere under SA with Q = K = V = I, Runge-Kutta 4, 64 runs for each dimension and beta,"
    " against the quadrature of the equiangular equation.",
)  # fmt: skip
