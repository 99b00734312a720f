"""Figures of flows: energies, cosines, tokens on the sphere, phase diagrams."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.phase import PhaseDiagram
from geoattn.dynamics.sphere_view import sphere_view
from geoattn.dynamics.token_flows import TokenFlow
from geoattn.dynamics.trajectory import Trajectory
from geoattn.plots.axes import COLOURS, own_axes, plain

__all__ = ["energy", "phase", "sphere", "token_flow"]


def energy(run: Trajectory, *, ax: Any = None) -> Any:
    """The interaction energy over time, a line a run, on a scale of logarithms.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> ax = ga.plots.energy(ga.simulate(torch.eye(4, dtype=torch.float64), until=2.0, save=5))
    >>> ax.get_ylabel(), len(ax.lines[0].get_xdata())
    ('log of the energy', 5)
    """
    ax = own_axes(ax)
    values = run.log_energy.reshape(len(run.t), -1).cpu().numpy()
    for k in range(values.shape[1]):
        ax.plot(run.t.cpu().numpy(), values[:, k], color=COLOURS[k % len(COLOURS)], linewidth=1.2)
    ax.set(xlabel="time", ylabel="log of the energy")
    return plain(ax)


def token_flow(flow: TokenFlow, what: str = "mean_cosine", *, ax: Any = None) -> Any:
    """Layers of a model beside the flow of its tokens: ``mean_cosine``, ``clusters``, or the name of a convention.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=1)
    >>> ax = ga.plots.token_flow(ga.profiles.model_flow(ga.load_model("lvit-digits"), digits))
    >>> [line.get_label() for line in ax.lines], ax.get_ylabel()
    (['model', 'flow'], 'mean cosine')
    """
    known = ("mean_cosine", "clusters", *flow.model.curvature)
    if what not in known:
        raise GeoattnError(f"this flow has {', '.join(known)}; got {what!r}.")
    ax = own_axes(ax)
    for k, (name, path) in enumerate((("model", flow.model), ("flow", flow.flow))):
        values = path.curvature[what] if what in path.curvature else getattr(path, what)
        ax.plot(range(len(values)), values, marker="os"[k], markersize=4, color=COLOURS[k], label=name)
    label = {"mean_cosine": "mean cosine", "clusters": "number of clusters"}.get(what, f"mean curvature ({what})")
    ax.set(xlabel="layer", ylabel=label)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize="small")
    return plain(ax)


def sphere(flow: TokenFlow | Trajectory, at: int = -1, *, ax: Any = None) -> Any:
    """Tokens on the sphere, seen from the side of their first axis: those of a layer, or of a moment of a run.

    Coloured from the first token to the last; small ones are behind. Of more than three dimensions the picture shows
    directions in three axes.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> ax = ga.plots.sphere(ga.simulate(torch.eye(4, dtype=torch.float64), until=2.0), at=0)
    >>> len(ax.collections[0].get_offsets())
    4
    """
    tokens = flow.model.tokens if isinstance(flow, TokenFlow) else flow.tokens
    if tokens.ndim > 3:
        tokens = tokens.flatten(1, -3)[:, 0]
    if not -len(tokens) <= at < len(tokens):
        raise GeoattnError(f"there are moments 0 to {len(tokens) - 1}; got {at}.")
    (points,), _ = sphere_view(tokens)
    x, y, z = points[at].cpu().numpy().T
    ax = own_axes(ax)
    angle = np.linspace(0, 2 * np.pi, 181)
    ax.plot(np.cos(angle), np.sin(angle), color="#999999", linewidth=0.8)
    order = np.argsort(x)
    ax.scatter(y[order], z[order], c=order, cmap="coolwarm", s=14 + 22 * (1 + x[order]) / 2, alpha=0.9, linewidth=0)
    ax.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08))
    ax.axis("off")
    return ax


def phase(diagram: PhaseDiagram, d: int | None = None, *, ax: Any = None) -> Any:
    """Share of pairs together over beta and time, for one dimension (the largest), with the curve of the theory.

    Examples
    --------
    >>> import geoattn as ga
    >>> ax = ga.plots.phase(ga.dynamics.phase_diagram([0.5, 1.0, 2.0], [16], n=8, runs=2, until=4.0))
    >>> ax.get_xlabel(), ax.get_ylabel(), len(ax.lines)
    ('beta', 'time', 1)
    """
    sizes = diagram.dims.tolist()
    if d is not None and d not in sizes:
        raise GeoattnError(f"this diagram has the dimensions {', '.join(map(str, sizes))}; got {d}.")
    ax = own_axes(ax)
    values = diagram.probability[sizes.index(max(sizes) if d is None else d)]
    image = ax.pcolormesh(diagram.betas, diagram.t, values.T, cmap="cividis", vmin=0, vmax=1, shading="nearest")
    ax.figure.colorbar(image, ax=ax, label="share of pairs together")
    ax.plot(diagram.betas, diagram.curve, color="white", linewidth=1.3, linestyle="--", label="limit of high dimension")
    ax.set(xlabel="beta", ylabel="time", ylim=(float(diagram.t[0]), float(diagram.t[-1])))
    return ax
