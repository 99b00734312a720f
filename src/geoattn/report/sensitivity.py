"""Section: numbers of the whole model under every convention, and whether their sign survives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geoattn.profiles.result import Profile
from geoattn.report.escaping import plotly_text
from geoattn.report.estimates import Estimate, by_layer, depth_change, depth_trend, of_row, variance_link
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section, key_of
from geoattn.report.templates import render
from geoattn.report.wording import interval, joined, number, signed, with_interval

__all__ = ["QUESTIONS", "Answer", "Question", "answer", "sensitivity", "verdict"]

_NARROW = 0.02  # a distribution whose middle 90 % are narrower says next to nothing


@dataclass(frozen=True)
class Question:
    """Something with a sign: what to measure, and what each sign means, as the end of a sentence.

    ``about`` is the question itself, as in "it depends on the convention whether ...".
    """

    title: str
    about: str
    measure: Callable[[Profile, str], Estimate | None]
    positive: str
    negative: str
    unclear: str


@dataclass(frozen=True)
class Answer:
    """A question's estimate under each convention; conventions for which there is none are left out."""

    question: Question
    estimates: dict[str, Estimate]

    @property
    def changes(self) -> bool:
        """Whether two conventions give clear and opposite signs."""
        return {1, -1} <= {e.sign for e in self.estimates.values()}


QUESTIONS = (
    Question(
        "Distance to one, last layer minus first",
        "whether the last layer is closer to 1 than the first",
        depth_change,
        "the last layer is farther from 1 than the first",
        "the last layer is closer to 1 than the first",
        "first and last layer do not clearly differ",
    ),
    Question(
        "Rank correlation of depth and distance to one",
        "whether curvature rises with depth",
        depth_trend,
        "deeper layers move away from 1",
        "deeper layers move towards 1",
        "there is no clear trend with depth",
    ),
    Question(
        "Mean curvature",
        "whether attention is positively curved on average",
        lambda profile, convention: of_row(profile, "mean", convention),
        "attention is positively curved on average",
        "attention is negatively curved on average",
        "mean curvature cannot be told from 0",
    ),
    Question(
        "Rank correlation of weight variance and mean curvature, over the layers",
        "whether layers with more varied weights are less curved",
        variance_link,
        "layers with more varied weights are more positively curved",
        "layers with more varied weights are less positively curved",
        "variance of the weights and curvature are not clearly linked over the layers",
    ),
)


def answer(question: Question, profile: Profile, conventions: tuple[str, ...]) -> Answer:
    """The question under each convention."""
    found = {name: question.measure(profile, name) for name in conventions}
    return Answer(question, {name: e for name, e in found.items() if e is not None and math.isfinite(e.value)})


def verdict(a: Answer) -> str:
    """One sentence: do the conventions agree, and if not, which says what."""
    q = a.question
    groups = {sign: [name for name, e in a.estimates.items() if e.sign == sign] for sign in (-1, 1, 0)}
    words = {-1: q.negative, 1: q.positive, 0: q.unclear}
    present = [sign for sign in (-1, 1, 0) if groups[sign]]
    if len(present) == 1:
        who = {1: "", 2: "Both conventions agree: "}.get(
            len(a.estimates), f"All {len(a.estimates)} conventions agree: "
        )
        sentence = who + words[present[0]] + "."
        return sentence[0].upper() + sentence[1:]
    parts = [f"under {joined(groups[sign])} {words[sign]}" for sign in present]
    if a.changes:
        return f"The sign depends on the convention: {'; '.join(parts)}."
    sentence = "; ".join(parts) + ". No convention says the opposite."
    return sentence[0].upper() + sentence[1:]


def sensitivity(models: Models) -> Section | None:
    """The section; None when there is one convention only."""
    if len(models.conventions) < 2:
        return None
    tables, lead, lines = [], [], {}
    for m, profile in enumerate(models.profiles):
        answers = [answer(q, profile, models.conventions) for q in QUESTIONS]
        answers = [a for a in answers if a.estimates]
        rows = [_row(a, models.conventions) for a in answers]
        tables.append({
            "model": models.names[m] if len(models.profiles) > 1 else "", "rows": rows,
            "spread": [_spread(profile, name) for name in models.conventions],
        })  # fmt: skip
        who = f"{models.names[m]}: " if len(models.profiles) > 1 else ""
        changed = sum(a.changes for a in answers)
        some = f"{changed} of the {len(answers)} numbers below {'changes' if changed == 1 else 'change'} sign"
        none = f"None of the {len(answers)} numbers below changes sign"
        lead.append(f"{who}{some if changed else none} with the convention.")
        lines[key_of(m)] = _lines(profile, models.conventions)
    lead += _degenerate(models)
    figure = Figure(
        "lines", "Distance to one under each convention", lines, ("model",), wide=True,
        note="The conventions measure different things: compare the shapes of the lines, not their heights.",
    )  # fmt: skip
    html = render("sensitivity.html.j2", tables=tables, conventions=models.conventions)
    return Section(
        "sensitivity", "Does the answer depend on the convention?", lead, models.controls()[:1], (figure,), before=html
    )


def _row(a: Answer, conventions: tuple[str, ...]) -> dict[str, Any]:
    arrows = {1: "▲", -1: "▼", 0: "○"}
    cells = []
    for name in conventions:
        e = a.estimates.get(name)
        cells.append(
            {"value": "–", "interval": "", "arrow": "", "sign": "none"}
            if e is None
            else {
                "value": signed(e.value), "interval": interval(e), "arrow": arrows[e.sign],
                "sign": {1: "up", -1: "down", 0: "unclear"}[e.sign],
            }
        )  # fmt: skip
    return {"title": a.question.title, "cells": cells, "verdict": verdict(a), "changes": a.changes}


def _spread(profile: Profile, convention: str) -> str:
    """Where the middle 90 % of the values lie, over the layers."""
    low, high = _middle(profile, convention)
    return f"{number(low)} to {number(high)}"


def _middle(profile: Profile, convention: str) -> tuple[float, float]:
    low = min(e.value for e in by_layer(profile, "q05", convention))
    high = max(e.value for e in by_layer(profile, "q95", convention))
    return low, high


def _degenerate(models: Models) -> list[str]:
    said = []
    for m, profile in enumerate(models.profiles):
        narrow = [
            f"{name} ({_spread(profile, name)})"
            for name in models.conventions
            if (lambda span: span[1] - span[0] < _NARROW)(_middle(profile, name))
        ]
        if narrow:
            who = f" for {models.names[m]}" if len(models.profiles) > 1 else ""
            said.append(
                f"{joined(narrow)} hardly depends on the attention{who}: almost all values lie in a narrow range."
            )
        said += [f"{note[:1].upper()}{note[1:]}." for note in profile.settings["notes"]]
    return list(dict.fromkeys(said))


def _lines(profile: Profile, conventions: tuple[str, ...]) -> dict[str, Any]:
    traces = []
    dashes, symbols = ("solid", "dash", "dot", "dashdot"), ("circle", "square", "diamond", "cross")
    for k, name in enumerate(conventions):
        values = by_layer(profile, "distance_to_one", name)
        traces.append({
            "type": "scatter", "mode": "lines+markers", "x": list(range(len(values))), "y": [e.value for e in values],
            "name": plotly_text(name),
            "line": {"color": f"var(--series-{k % 4 + 1})", "width": 1.8, "dash": dashes[k % 4]},
            "marker": {"size": 7, "symbol": symbols[k % 4]}, "customdata": [with_interval(e) for e in values],
            "hovertemplate": f"{plotly_text(name)}, layer %{{x}}<br>%{{customdata}}<extra></extra>",
        })  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": "layer"}, "dtick": 1 if len(profile.layers) <= 12 else 2},
            "yaxis": {"title": {"text": "distance to one"}, "rangemode": "tozero"},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, "height": 340,
        },
    }  # fmt: skip
