"""What stands out in a profile, in plain sentences, each from numbers with their intervals."""

from __future__ import annotations

import numpy as np

from geoattn.curvature.transport import Status
from geoattn.profiles.result import Profile
from geoattn.report.estimates import Estimate, by_head, by_layer, depth_change, depth_trend, of_row
from geoattn.report.wording import count, joined, number, percent, share, signed, with_interval

__all__ = ["doubts", "findings", "outlying_heads"]

_OUTLYING = 3.5  # median absolute deviations, the usual limit of Iglewicz and Hoaglin
_FEWEST_HEADS = 8
_MOST_NAMED = 3


def findings(profile: Profile, convention: str) -> list[str]:
    """Sentences, the most important first."""
    found = [_depth(profile, convention), _extremes(profile, convention), _negative(profile, convention)]
    found.append(_heads(profile, convention))
    return [sentence for sentence in found if sentence]


def _depth(profile: Profile, convention: str) -> str:
    change = depth_change(profile, convention)
    if change is None:
        return ""
    last = len(profile.layers) - 1
    first, end = (number(of_row(profile, "distance_to_one", convention, k).value) for k in (0, last))
    numbers = f"distance to one {first} in layer 0, {end} in layer {last}, difference {_signed(change)}"
    if change.sign == 0:
        sentence = f"First and last layer do not clearly differ: {numbers}."
    else:
        closer = (
            "closer to 1 (more positively curved)" if change.sign < 0 else "farther from 1 (less positively curved)"
        )
        sentence = f"The last layer is {closer} than the first: {numbers}."
    trend = depth_trend(profile, convention)
    if trend is None:
        return sentence
    way = {-1: "Over all layers curvature rises with depth", 1: "Over all layers curvature falls with depth"}
    words = way.get(trend.sign, "Over all layers there is no clear trend with depth")
    return f"{sentence} {words} (rank correlation of depth and distance to one {_signed(trend)})."


def _extremes(profile: Profile, convention: str) -> str:
    values = by_layer(profile, "distance_to_one", convention)
    if len(values) < 3 or not np.isfinite([e.value for e in values]).all():
        return ""
    order = np.argsort([e.value for e in values])
    low, high = int(order[0]), int(order[-1])
    alone = values[low].high < values[int(order[1])].low and values[int(order[-2])].high < values[high].low
    unsure = "" if alone else " Their neighbours in this order have overlapping intervals."
    return (
        f"Layer {low} is the closest to 1, at {with_interval(values[low])}; layer {high} the farthest, at"
        f" {with_interval(values[high])}.{unsure}"
    )


def _negative(profile: Profile, convention: str) -> str:
    whole = of_row(profile, "negative_share", convention)
    if not np.isfinite(whole.value):
        return ""
    if whole.value == 0:
        return "No edge has negative curvature."
    layers = by_layer(profile, "negative_share", convention)
    shares = np.nan_to_num([e.value for e in layers])
    worst = int(np.argmax(shares))
    lowest = min(of_row(profile, "min", convention, k).value for k in range(len(layers)))
    where = f", most in layer {worst} ({share(layers[worst])})" if len(layers) > 1 else ""
    return (
        f"{share(whole)} of the edges have negative curvature, as in a tree or a bottleneck{where}; the lowest value is"
        f" {number(lowest)}."
    )


def outlying_heads(profile: Profile, convention: str) -> list[tuple[int, int, Estimate]]:
    """(layer, head, distance to one) of the heads far from the others, the farthest first.

    Far: more than 3.5 median absolute deviations (scaled by 0.6745) from the median over all heads of the model.
    """
    found = {p: e for p, e in by_head(profile, "distance_to_one", convention).items() if np.isfinite(e.value)}
    if len(found) < _FEWEST_HEADS:
        return []
    values = np.array([e.value for e in found.values()])
    away = np.abs(values - np.median(values))
    spread = np.median(away)
    if spread == 0:
        return []
    places = list(found.items())
    order = [int(k) for k in np.argsort(-away) if 0.6745 * away[k] / spread > _OUTLYING]
    return [(*places[k][0], places[k][1]) for k in order]


def _heads(profile: Profile, convention: str) -> str:
    if max(profile.settings["heads"]) < 2:
        return ""
    found = outlying_heads(profile, convention)
    heads = np.array([e.value for e in by_head(profile, "distance_to_one", convention).values()])
    middle = f"the median over {count(len(heads), 'head')} is {number(float(np.nanmedian(heads)))}"
    if not found:
        low, high = number(float(np.nanmin(heads))), number(float(np.nanmax(heads)))
        return f"No head stands apart from the others: their distances to one span {low} to {high}, {middle}."
    names = [f"layer {k} head {h} ({with_interval(e)})" for k, h, e in found[:_MOST_NAMED]]
    more = len(found) - len(names)
    rest = f", and {more} more" if more else ""
    verb = "stand" if len(found) > 1 else "stands"
    names = f"{joined(names)}{rest}"
    return f"{names[:1].upper()}{names[1:]} {verb} apart in distance to one; {middle}."


def doubts(profile: Profile) -> list[str]:
    """What a reader must know before trusting the numbers: edges without a value, layers left out, one sample."""
    s = profile.settings
    said = []
    if s["samples"] < 2:
        said.append("There is one sample only, so there are no intervals and no tests.")
    for status, edges in s["statuses"].items():
        if status != Status.SOLVED.name.lower():
            why = str(Status[status.upper()]) if status.upper() in Status.__members__ else status
            said.append(
                f"{count(edges, 'edge')} of {s['edges_in_all']:,} ({percent(edges / s['edges_in_all'])}): {why}."
            )
    if s["values"] < s["edges_in_all"] * 0.999 and s["edges"] != "all":
        said.append(
            f"Of {s['edges_in_all']:,} edges {s['values']:,} were drawn at random and solved; the intervals are over"
            " samples and include the effect of the draw."
        )
    if s["skipped"]:
        said.append(
            f"{count(len(s['skipped']), 'attention module')} not measured: no self-attention over two or more tokens."
        )
    return said


def _signed(estimate: Estimate) -> str:
    return with_interval(estimate, signed)
