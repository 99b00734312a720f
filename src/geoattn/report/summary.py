"""The top of the page: the headline numbers, and what stands out, in words."""

from __future__ import annotations

from typing import Any

from geoattn.report.comparison import comparison_sentences
from geoattn.report.escaping import visible
from geoattn.report.estimates import depth_change, of_row
from geoattn.report.findings import doubts, findings
from geoattn.report.models import Models
from geoattn.report.sensitivity import QUESTIONS, answer
from geoattn.report.wording import count, interval, joined, number, percent, short_count, signed

__all__ = ["summary"]


def summary(models: Models) -> dict[str, Any]:
    """What the template of the summary needs; plain text only."""
    main, first = models.conventions[0], models.profiles[0]
    caution, depends = _caution(models)
    said: list[dict[str, Any]] = []
    if len(models.profiles) > 1:
        said.append({"model": "", "sentences": comparison_sentences(models)})
    for m, profile in enumerate(models.profiles):
        name = models.names[m] if len(models.profiles) > 1 else ""
        said.append({"model": name, "sentences": findings(profile, main)})
    convention = next(c for c in first.conventions if c.name == main)
    return {
        "names": models.names,
        "subtitle": _subtitle(models),
        "cards": [_cards(models, m) for m in range(len(models.profiles))],
        "said": said,
        "caution": caution,
        "depends": depends,
        "doubts": list(dict.fromkeys(d for p in models.profiles for d in doubts(p))),
        "level": f"{100 * first.settings['level']:.3g} %",
        "robustness": any(found is not None for found in models.robustness),
        "convention": main,
        "convention_words": convention.in_words(),
    }


def _subtitle(models: Models) -> list[str]:
    parts = []
    for profile in models.profiles:
        s = profile.settings
        heads = sorted(set(s["heads"]))
        each = f"{joined([str(h) for h in heads])} head{'' if heads == [1] else 's'}"
        shape = f"{count(len(profile.layers), 'layer')} of {each}"
        special = ", content tokens only" if s["tokens"] == "content" else ""
        parts.append(f"{count(s['samples'], 'sample')} of {visible(s['data'], 60)}, {shape}{special}")
    return list(dict.fromkeys(parts))


def _cards(models: Models, m: int) -> list[dict[str, str]]:
    profile, main = models.profiles[m], models.conventions[0]
    s = profile.settings
    distance, negative = of_row(profile, "distance_to_one", main), of_row(profile, "negative_share", main)
    cards = [
        {"label": "distance to one", "value": number(distance.value), "detail": interval(distance)},
    ]
    change = depth_change(profile, main)
    if change is not None:
        ends = [number(of_row(profile, "distance_to_one", main, k).value) for k in (0, len(profile.layers) - 1)]
        cards.append({
            "label": "first to last layer", "value": " → ".join(ends),
            "detail": f"{signed(change.value)} {interval(change)}".rstrip(),
        })  # fmt: skip
    cards.append({"label": "edges with negative curvature", "value": percent(negative.value),
                  "detail": interval(negative, percent)})  # fmt: skip
    several = f" under {len(profile.conventions)} conventions" if len(profile.conventions) > 1 else ""
    cards.append({
        "label": "edges solved exactly", "value": short_count(s["values"]),
        "detail": f"{count(s['maps'], 'graph')}{several}, {s['seconds']:,.1f} s",
    })  # fmt: skip
    return cards


def _caution(models: Models) -> tuple[str, bool]:
    """A sentence on whether the findings survive a change of convention, and whether one of them does not."""
    if len(models.conventions) < 2:
        return "Another convention may give another answer; this report has one.", False
    changed = [
        a.question.about for p in models.profiles for q in QUESTIONS if (a := answer(q, p, models.conventions)).changes
    ]
    changed = list(dict.fromkeys(changed))
    if not changed:
        return f"These findings keep their sign under all of {joined(list(models.conventions))}.", False
    return f"It depends on the convention {joined(changed)}.", True
