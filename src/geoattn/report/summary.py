"""The top of the page: the headline numbers, and what stands out, in words."""

from __future__ import annotations

from typing import Any

from geoattn.report.comparison import comparison_answers, comparison_sentences
from geoattn.report.escaping import visible
from geoattn.report.estimates import depth_change, of_row
from geoattn.report.findings import Finding, doubts, findings
from geoattn.report.models import Models
from geoattn.report.wording import count, interval, joined, number, percent, short_count, signed

__all__ = ["summary"]


def summary(models: Models) -> dict[str, Any]:
    """What the template of the summary needs; plain text only."""
    main, first = models.conventions[0], models.profiles[0]
    said: list[dict[str, Any]] = []
    if len(models.profiles) > 1:
        rows = [{"sentence": one, "tested": "", "holds": True} for one in comparison_sentences(models)]  # each says it
        said.append({"model": "", "findings": rows})
    found: list[Finding] = []
    for m, profile in enumerate(models.profiles):
        name = models.names[m] if len(models.profiles) > 1 else ""
        own = findings(profile, main, models.conventions)
        found += own
        rows = [{"sentence": one.sentence, "tested": one.tested, "holds": one.holds} for one in own]
        said.append({"model": name, "findings": rows})
    caution, depends = _caution(models, found)
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


def _caution(models: Models, found: list[Finding]) -> tuple[str, bool]:
    """A sentence on which findings hold under all conventions, of those that were tested, and whether some do not."""
    names = list(models.conventions)
    if len(names) < 2:
        return f"These findings are tested under {names[0]} only; another convention may give another answer.", False
    changed = [one.about for one in found if not one.holds]
    if len(models.profiles) > 1:
        changed += [answer.question.about for answer in comparison_answers(models).values() if answer.changes]
    changed = list(dict.fromkeys(changed))
    if not changed:
        return f"Each of these findings holds under all of {joined(names)}.", False
    rest = sum(one.holds for one in found)
    others = f" {count(rest, 'finding')} of {len(found)} {'holds' if rest == 1 else 'hold'} under all." if rest else ""
    return f"It depends on the convention {joined(changed)}.{others}", True
