"""`write_report`: the page as one file."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from geoattn._core.files import write_atomically
from geoattn._version import __version__
from geoattn.profiles.result import Profile
from geoattn.report.comparison import comparison
from geoattn.report.distributions import distributions
from geoattn.report.escaping import json_for_script
from geoattn.report.gradient_flow import gradient_flow
from geoattn.report.graph_view import graph_view
from geoattn.report.heads import heads
from geoattn.report.models import Models
from geoattn.report.perturbed import perturbed
from geoattn.report.provenance import provenance
from geoattn.report.section import Section
from geoattn.report.sensitivity import sensitivity
from geoattn.report.smoothness import smoothness
from geoattn.report.spectrum import spectrum
from geoattn.report.summary import summary
from geoattn.report.templates import package_file, render
from geoattn.report.token_view import token_view
from geoattn.report.training import training

__all__ = ["SECTIONS", "document", "page", "write_report"]

#: The sections in their order. Each takes the models and gives a `Section`, or None when it has nothing to show.
SECTIONS: list[Callable[[Models], Section | None]] = [
    comparison, distributions, heads, graph_view, token_view, spectrum, smoothness, gradient_flow, perturbed, training,
    sensitivity,
]  # fmt: skip

_SCRIPTS = ("figures", "graph", "sphere", "start")


def write_report(
    path: str | os.PathLike[str], profile: Profile, other: Profile | None = None, *, command: str | None = None,
    robustness: Any = None, runs: Sequence[Any] = (), flows: Sequence[Any] = (),
) -> None:  # fmt: skip
    """Write the report of one model, or of two side by side, to one HTML file.

    The file holds all that it needs, so that it opens from disk without a network. A policy in the page names the
    scripts that may run by their checksums, so that no text in it can become one. Either the whole file is written or
    nothing.

    Parameters
    ----------
    path
        Path of the HTML file. Folders that are missing are made.
    profile, other
        Results of `profile`. Conventions that both have are shown.
    command
        The command that makes the report again, to be shown in it.
    robustness
        The result of `geoattn.robustness` for the model, or a pair of them: accuracy drops and examples are shown.
    runs
        Training runs, from `geoattn.training.read_run`: their curves are shown.
    flows
        The result of `model_flow` for each model, or None: their tokens are shown on the sphere.

    Examples
    --------
    >>> import pathlib, tempfile, geoattn as ga
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> result = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    >>> ga.report.write_report(path, result)
    >>> path.read_text().startswith("<!doctype html>")
    True
    """
    text = page(profile, other, command=command, robustness=robustness, runs=runs, flows=flows)
    content = text.encode("utf-8", errors="replace")
    write_atomically(path, lambda file: file.write(content))


def page(
    profile: Profile, other: Profile | None = None, *, command: str | None = None, robustness: Any = None,
    runs: Sequence[Any] = (), flows: Sequence[Any] = (),
) -> str:  # fmt: skip
    """The page as text."""
    models = replace(Models.of(profile, other, robustness, runs), flows=tuple(flows))
    sections = [s for make in SECTIONS if (s := make(models)) is not None]
    sections.append(provenance(models, command))
    return document("page.html.j2", sections, version=__version__, title=" and ".join(models.names), **summary(models))


def document(template: str, sections: Sequence[Section], **context: Any) -> str:
    """A page of sections with its data, its style and its scripts; Plotly is in it when there is a figure."""
    scripts = [Markup(package_file(f"scripts/{name}.js")) for name in _SCRIPTS]
    if any(section.figures for section in sections):
        from plotly.offline import get_plotlyjs

        scripts.insert(0, Markup(get_plotlyjs()))
    data = json_for_script({s.key: _data(s) for s in sections})
    text = render(
        template, sections=sections, data=data, scripts=scripts, policy=_policy(scripts),
        style=Markup(package_file("report.css")), **context,
    )  # fmt: skip
    return str(text)  # no longer markup: a frame escapes it as a whole


def _data(section: Section) -> dict[str, Any]:
    figures = {f.name: {"by": f.by, "variants": f.variants} for f in section.figures}
    return {"figures": figures, **section.data}


def _policy(scripts: list[Markup]) -> str:
    """Content security policy: nothing from the network, and no script but these."""
    sums = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(s).decode()}'" for s in sums)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:;"
        " base-uri 'none'; form-action 'none'"
    )
