"""Section: how the report was made, how to make it again, what to cite, and the numbers to take away."""

from __future__ import annotations

import base64
import io
from importlib import metadata
from typing import Any

from geoattn.citations import METHODS, cite
from geoattn.report.escaping import visible
from geoattn.report.models import Models
from geoattn.report.section import Section
from geoattn.report.templates import render

__all__ = ["provenance"]

_LARGEST_CSV = 1 << 20  # bytes; beyond it the table comes as Parquet only
_SHOWN = ("model", "data", "tokens", "edges", "samples", "maps", "seed", "resamplings", "level", "threads", "seconds")


def provenance(models: Models, command: str | None) -> Section:
    """The section."""
    conventions = [c for c in models.profiles[0].conventions if c.name in models.conventions]
    methods = ["attention", *(c.name for c in conventions if c.name in METHODS)]
    if any(c.name not in METHODS for c in conventions):
        methods.append("ollivier")
    versions: dict[str, str] = {}
    for profile in models.profiles:
        versions |= {str(k): str(v) for k, v in profile.settings["versions"].items()}
    versions |= {name: metadata.version(name) for name in ("plotly", "pandas")}
    html = render(
        "provenance.html.j2",
        settings=_settings(models),
        conventions=[(c.name, c.in_words()) for c in conventions], versions=versions,
        gap=max(float(p.settings["max_gap"]) for p in models.profiles),
        command=command, snippet=_snippet(models), bibtex=cite(*methods), downloads=_downloads(models),
    )  # fmt: skip
    return Section("provenance", "How this was made", html=html)


def _settings(models: Models) -> list[tuple[str, list[str]]]:
    """(name, value of each model)."""
    return [(name, [visible(p.settings.get(name, ""), 120) for p in models.profiles]) for name in _SHOWN]


def _snippet(models: Models) -> str:
    """What to write in Python; the model and the data are the reader's own."""
    s = models.profiles[0].settings
    options = [f"convention={list(models.conventions)!r}", f"tokens={s['tokens']!r}", f"edges={s['edges']!r}"]
    options += [f"seed={s['seed']}", f"resamplings={s['resamplings']}", f"examples={len(models.profiles[0].examples)}"]
    call = f"ga.profile(model, data, {', '.join(options)})"
    if len(models.profiles) == 1:
        return f"import geoattn as ga\n\n{call}.report('report.html')"
    return (
        f"import geoattn as ga\n\nfirst, second = ({call.replace('model', 'm', 1)} for m in models)\n"
        "first.report('report.html', other=second)"
    )


def _downloads(models: Models) -> list[dict[str, Any]]:
    import pandas as pd

    named = [p.to_pandas().assign(model=str(p.settings["model"])) for p in models.profiles]
    table = pd.concat(named, ignore_index=True) if len(named) > 1 else named[0].drop(columns="model")
    csv = table.to_csv(index=False).encode()
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False, compression="zstd")
    files = [("geoattn-profile.csv", "text/csv", csv)] if len(csv) <= _LARGEST_CSV else []
    files.append(("geoattn-profile.parquet", "application/vnd.apache.parquet", buffer.getvalue()))
    return [
        {
            "name": name, "size": f"{len(content) / 1000:,.0f} kB",
            "url": f"data:{kind};base64,{base64.b64encode(content).decode()}", "rows": f"{len(table):,}",
        }
        for name, kind, content in files
    ]  # fmt: skip
