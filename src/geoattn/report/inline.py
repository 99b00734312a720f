"""`view`: the graph, the heat map and the sphere of the report, inline in a notebook and without a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from inspect import signature
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.names import did_you_mean
from geoattn.attention.call import Call
from geoattn.attention.record import Record
from geoattn.curvature.result import Curvature
from geoattn.dynamics.mobility.minimising_movement import MinimisingMovement
from geoattn.dynamics.mobility.result import MobilityDistance, MobilityPath
from geoattn.dynamics.token_flows import TokenFlow
from geoattn.dynamics.trajectory import Trajectory
from geoattn.profiles.examples import Example
from geoattn.profiles.record_profile import record_profile
from geoattn.profiles.result import Profile
from geoattn.report.graph_view import graph_section, graph_view
from geoattn.report.heads import heads, heat_map
from geoattn.report.models import Models
from geoattn.report.page import document
from geoattn.report.section import Figure, Section
from geoattn.report.templates import render
from geoattn.report.token_view import UNIT, flow_scene, token_section, token_view

__all__ = ["View", "view"]

_HEIGHTS = {"heads": 560, "matrix": 640, "graph": 960, "tokens": 1080}  # pixels, in a window of 1,280


@dataclass(frozen=True, eq=False, repr=False)
class View:
    """A page of its own that a notebook shows in a frame. ``html`` is the page; it asks the network for nothing.

    The frame may run the scripts of the page and nothing else: it has no access to the notebook.

    Examples
    --------
    >>> import geoattn as ga
    >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    >>> shown = ga.profile(model, digits).view()
    >>> shown.html.startswith("<!doctype html>"), "sandbox=" in shown._repr_html_()
    (True, True)
    """

    html: str
    height: int
    title: str

    def __repr__(self) -> str:
        return f"View({self.title}, {len(self.html) / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="{escape(self.title)}"'
            f' style="width:100%;height:{self.height}px;border:0;display:block" loading="lazy"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; it opens from disk."""
        write_atomically(path, lambda file: file.write(self.html.encode("utf-8", errors="replace")))


def view(result: Any, **choices: Any) -> View:
    """What there is to look at in a result: a profile, a record, a call, a curvature, a flow, a trajectory, a geodesic.

    A profile: the heat map of its heads and the graphs of its examples; ``flows=[...]`` of `model_flow` add the
    sphere. A record or a call: the same for ``sample=0``, with ``tokens=[...]`` as labels and a ``convention``. A
    curvature: its edges, with ``tokens=[...]``, and of five axes ``sample=0``. ``height`` is that of the frame.

    Examples
    --------
    >>> import geoattn as ga
    >>> ga.report.view(ga.ollivier_ricci(ga.datasets.load_sample()[0, 0]))
    View(Curvature, ... MB)
    """
    height = choices.pop("height", None)
    for kind, make in _VIEWS.items():
        if isinstance(result, kind):
            _check_choices(kind, make, choices)
            sections = make(result, **choices)
            title = kind.__name__
            total = 20 + sum(_HEIGHTS[section.key] + 360 * len(section.figures[1:]) for section in sections)
            return View(document("view.html.j2", sections, title=title), int(height or total), title)
    raise GeoattnError(f"there is no view of {type(result).__name__}; there is one of {_names()}.")


def _check_choices(kind: type, make: Any, choices: dict[str, Any]) -> None:
    """An error that lists the choices of a view, for a choice that it does not have."""
    makers = (make, record_profile) if make is _calls else (make,)
    named = [p.name for one in makers for p in list(signature(one).parameters.values())[1:] if p.kind != p.VAR_KEYWORD]
    known = [*named, "height"]
    wrong = [name for name in choices if name not in known]
    if wrong:
        raise GeoattnError(
            f"the view of a {kind.__name__} does not know this choice: {', '.join(wrong)}; it has"
            f" {', '.join(known)}.{did_you_mean(wrong[0], known)}"
        )


def _names() -> str:
    return ", ".join(kind.__name__ for kind in _VIEWS)


def _profile(profile: Profile, *, flows: Sequence[Any] = ()) -> list[Section]:
    models = replace(Models.of(profile, None), flows=tuple(flows))
    return _some(heads(models), graph_view(models), token_view(models))


def _some(*sections: Section | None) -> list[Section]:
    found = [section for section in sections if section is not None]
    if not found:
        raise GeoattnError("there is nothing to show: one head, and no example was kept; profile with examples=1.")
    return found


def _calls(calls: Any, **choices: Any) -> list[Section]:
    return _profile(record_profile([calls] if isinstance(calls, Call) else list(calls), **choices))


def _flow(flow: TokenFlow) -> list[Section]:
    return [token_section([("model", flow, ())])]


def _path(path: MobilityPath | MinimisingMovement) -> list[Section]:
    return _trajectory(path)


def _geodesic(found: MobilityDistance) -> list[Section]:
    return _trajectory(found.path)


def _trajectory(run: Any, *, run_number: int = 0) -> list[Section]:
    data = {"scenes": [flow_scene("flow", run, run_number)], "unit": UNIT}
    section = Section("tokens", "Tokens on the sphere", [], html=render("tokens.html.j2"), data=data)
    return [section]


def _curvature(result: Curvature, *, tokens: Sequence[str] | None = None, sample: int = 0) -> list[Section]:
    place, kappa, distance = result.places(), result.column("kappa"), result.column("distance")
    batch = place.shape[1] - 2
    if batch == 3:
        chosen = place[:, 1] == sample
        place, kappa, distance = place[chosen][:, [0, 2, 3, 4]], kappa[chosen], distance[chosen]
    elif batch > 3:
        raise GeoattnError(f"a view shows at most three axes in front of the tokens; got {batch}: cut the attention.")
    place = np.concatenate([np.zeros((len(place), max(0, 4 - place.shape[1])), dtype=np.int64), place], axis=1)
    n = result.shape[-1]
    names = [str(k) for k in range(n)] if tokens is None else [str(token) for token in tokens]
    if len(names) != n:
        raise GeoattnError(f"tokens must name each of the {n} tokens; got {len(names)}.")
    layers, width = (int(place[:, k].max(initial=0)) + 1 for k in (0, 1))
    parts = [np.flatnonzero(place[:, 0] == k) for k in range(layers)]
    with np.errstate(over="ignore"):
        near = np.nan_to_num(np.exp(-distance))
    example = Example(
        sample=sample, tokens=tuple(names), valid=(True,) * n, image=None, grid=None,
        edges=tuple(place[part][:, 1:] for part in parts), weights=tuple(near[part] for part in parts),
        kappa=tuple(kappa[part] for part in parts),
    )  # fmt: skip
    graph = graph_section([(0, example, [width] * layers)], ["graph"], result.convention.name, "exp(−distance)")
    return _some(_map_of(place, kappa, layers, width, n), graph)


def _map_of(place: np.ndarray, kappa: np.ndarray, layers: int, width: int, n: int) -> Section | None:
    """Mean curvature of each map, or of one map the curvature of each pair."""
    if layers * width == 1:
        z = np.full((n, n), np.nan)
        z[place[:, 2], place[:, 3]] = z[place[:, 3], place[:, 2]] = kappa
        spec = heat_map(z, "curvature", rows="token", columns="token")
        return Section("matrix", "Curvature of each pair", figures=(Figure("map", "Tokens", {"": spec}, wide=True),))
    good = np.isfinite(kappa)
    cell = place[good, 0] * width + place[good, 1]
    count = np.bincount(cell, minlength=layers * width)
    total = np.bincount(cell, kappa[good], minlength=layers * width)
    z = np.divide(total, count, out=np.full(layers * width, np.nan), where=count > 0).reshape(layers, width)
    lead = ["Each cell is one map. A click on a cell shows its graph."]
    figure = Figure("map", "Mean curvature", {"": heat_map(z, "mean curvature")}, wide=True)
    return Section("heads", "Maps", lead, figures=(figure,))


_VIEWS: dict[type, Any] = {
    Profile: _profile, Record: _calls, Call: _calls, Curvature: _curvature, TokenFlow: _flow, Trajectory: _trajectory,
    MobilityDistance: _geodesic, MobilityPath: _path, MinimisingMovement: _path,
}  # fmt: skip
