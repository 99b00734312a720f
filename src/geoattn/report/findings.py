"""What stands out in a profile, in plain sentences with intervals, each tested under every convention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from geoattn.curvature.transport import Status
from geoattn.profiles.result import Profile
from geoattn.report.estimates import Estimate, by_head, by_layer, depth_change, depth_trend, of_row
from geoattn.report.wording import count, joined, number, percent, share, signed, with_interval

__all__ = ["Finding", "Seen", "doubts", "findings", "outlying_heads"]

_OUTLYING = 3.5  # median absolute deviations, the usual limit of Iglewicz and Hoaglin
_FEWEST_HEADS = 8
_MOST_NAMED = 3


@dataclass(frozen=True)
class Seen:
    """What one convention shows of a finding: whether it ``holds`` there, and what it ``says`` instead or as well."""

    holds: bool
    says: str


@dataclass(frozen=True)
class Finding:
    """A sentence, what it is ``about`` ("whether ..."), and what each convention shows of it; the first one made it."""

    sentence: str
    about: str
    seen: dict[str, Seen]

    @property
    def holds(self) -> bool:
        """Whether it holds under every convention that was measured."""
        return all(one.holds for one in self.seen.values())

    @property
    def tested(self) -> str:
        """Beside the sentence: under which conventions it holds, and what the others say."""
        names = list(self.seen)
        if len(names) == 1:
            return f"Tested under {names[0]} only."
        if self.holds:
            return f"Holds under all of {joined(names)}."
        agree = [name for name, one in self.seen.items() if one.holds]
        differ = [f"{name} ({one.says})" for name, one in self.seen.items() if not one.holds]
        return f"Holds under {joined(agree)}; not under {joined(differ)}."


def findings(profile: Profile, convention: str, conventions: Sequence[str] | None = None) -> list[Finding]:
    """Findings under one convention, the most important first, each tested under all ``conventions`` by itself.

    By default those are all that the profile has.
    """
    others = [c.name for c in profile.conventions] if conventions is None else list(conventions)
    order = [convention, *(name for name in others if name != convention)]
    makers = (_depth, _trend, _extremes, _negative, _heads)
    return [found for make in makers if (found := make(profile, order)) is not None]


def _depth(profile: Profile, order: list[str]) -> Finding | None:
    change = depth_change(profile, order[0])
    if change is None:
        return None
    last = len(profile.layers) - 1
    first, end = (number(of_row(profile, "distance_to_one", order[0], k).value) for k in (0, last))
    numbers = f"distance to one {first} in layer 0, {end} in layer {last}, difference {_signed(change)}"
    if change.sign == 0:
        sentence = f"First and last layer do not clearly differ: {numbers}."
    else:
        closer = (
            "closer to 1 (more positively curved)" if change.sign < 0 else "farther from 1 (less positively curved)"
        )
        sentence = f"The last layer is {closer} than the first: {numbers}."
    words = {-1: "closer", 1: "farther", 0: "no clear difference"}
    return Finding(
        sentence, "whether the last layer is closer to 1 than the first",
        _signs(profile, order, depth_change, change.sign, words),
    )  # fmt: skip


def _trend(profile: Profile, order: list[str]) -> Finding | None:
    trend = depth_trend(profile, order[0])
    if trend is None:
        return None
    way = {-1: "Over all layers curvature rises with depth", 1: "Over all layers curvature falls with depth"}
    words = way.get(trend.sign, "Over all layers there is no clear trend with depth")
    short = {-1: "it rises", 1: "it falls", 0: "no clear trend"}
    return Finding(
        f"{words} (rank correlation of depth and distance to one {_signed(trend)}).",
        "whether curvature rises with depth", _signs(profile, order, depth_trend, trend.sign, short),
    )  # fmt: skip


def _signs(
    profile: Profile, order: list[str], measure: Callable[[Profile, str], Estimate | None], sign: int,
    words: dict[int, str],
) -> dict[str, Seen]:  # fmt: skip
    seen = {}
    for name in order:
        found = measure(profile, name)
        if found is None or not np.isfinite(found.value):
            seen[name] = Seen(False, "no value")
        else:
            seen[name] = Seen(found.sign == sign, f"{words[found.sign]}, {_signed(found)}")
    return seen


def _extremes(profile: Profile, order: list[str]) -> Finding | None:
    values = by_layer(profile, "distance_to_one", order[0])
    if len(values) < 3 or not np.isfinite([e.value for e in values]).all():
        return None
    ranked = np.argsort([e.value for e in values])
    low, high = int(ranked[0]), int(ranked[-1])
    alone = values[low].high < values[int(ranked[1])].low and values[int(ranked[-2])].high < values[high].low
    unsure = "" if alone else " Their neighbours in this order have overlapping intervals."
    seen = {}
    for name in order:
        found = [e.value for e in by_layer(profile, "distance_to_one", name)]
        if not np.isfinite(found).all():
            seen[name] = Seen(False, "no value")
            continue
        near, far = int(np.argmin(found)), int(np.argmax(found))
        seen[name] = Seen((near, far) == (low, high), f"layer {near} the closest, layer {far} the farthest")
    return Finding(
        f"Layer {low} is the closest to 1, at {with_interval(values[low])}; layer {high} the farthest, at"
        f" {with_interval(values[high])}.{unsure}",
        "which layers are the closest to 1 and the farthest", seen,
    )  # fmt: skip


def _negative(profile: Profile, order: list[str]) -> Finding | None:
    whole = of_row(profile, "negative_share", order[0])
    if not np.isfinite(whole.value):
        return None
    if whole.value == 0:
        shares = {name: of_row(profile, "negative_share", name).value for name in order}
        seen = {name: Seen(value == 0, f"{percent(value)} are negative") for name, value in shares.items()}
        return Finding("No edge has negative curvature.", "whether any edge has negative curvature", seen)
    worst, layers = _most_negative(profile, order[0])
    lowest = min(of_row(profile, "min", order[0], k).value for k in range(len(layers)))
    several = len(layers) > 1
    where = f", most in layer {worst} ({share(layers[worst])})" if several else ""
    seen = {}
    for name in order:
        there, shares = _most_negative(profile, name)
        if of_row(profile, "negative_share", name).value == 0:
            seen[name] = Seen(False, "no edge is negative")
        else:
            here = f"{percent(shares[worst].value)} in layer {worst}"
            seen[name] = Seen(there == worst, f"most in layer {there}, {percent(shares[there].value)}; {here}")
    return Finding(
        f"{share(whole)} of the edges have negative curvature, as in a tree or a bottleneck{where}; the lowest value is"
        f" {number(lowest)}.",
        "which layer has most negative edges" if several else "whether edges have negative curvature", seen,
    )  # fmt: skip


def _most_negative(profile: Profile, convention: str) -> tuple[int, list[Estimate]]:
    layers = by_layer(profile, "negative_share", convention)
    return int(np.argmax(np.nan_to_num([e.value for e in layers]))), layers


def outlying_heads(profile: Profile, convention: str) -> list[tuple[int, int, Estimate]]:
    """(layer, head, distance to one) of the heads far from the others, the farthest first.

    Far: more than 3.5 median absolute deviations (scaled by 0.6745) from the median over all heads of the model.
    """
    found = {p: e for p, e in by_head(profile, "distance_to_one", convention).items() if np.isfinite(e.value)}
    if len(found) < _FEWEST_HEADS:
        return []
    away = _away(found)
    spread = np.median(list(away.values()))
    if spread == 0:
        return []
    far = [place for place in sorted(away, key=lambda p: -away[p]) if 0.6745 * away[place] / spread > _OUTLYING]
    return [(*place, found[place]) for place in far]


def _away(found: dict[tuple[int, int], Estimate]) -> dict[tuple[int, int], float]:
    middle = float(np.nanmedian([e.value for e in found.values()]))
    return {place: abs(e.value - middle) for place, e in found.items() if np.isfinite(e.value)}


def _heads(profile: Profile, order: list[str]) -> Finding | None:
    if max(profile.settings["heads"]) < 2:
        return None
    found = outlying_heads(profile, order[0])
    heads = np.array([e.value for e in by_head(profile, "distance_to_one", order[0]).values()])
    if not np.isfinite(heads).any():
        return None
    middle = f"the median over {count(len(heads), 'head')} is {number(float(np.nanmedian(heads)))}"
    if not found:
        low, high = number(float(np.nanmin(heads))), number(float(np.nanmax(heads)))
        seen = {}
        for name in order:
            apart = outlying_heads(profile, name)
            first = "".join(f", layer {k} head {h} the most" for k, h, _ in apart[:1])
            seen[name] = Seen(not apart, f"{count(len(apart), 'head')} apart{first}")
        sentence = f"No head stands apart from the others: their distances to one span {low} to {high}, {middle}."
        return Finding(sentence, "whether a head stands apart", seen)
    named = [(k, h) for k, h, _ in found[:_MOST_NAMED]]
    names = [f"layer {k} head {h} ({with_interval(e)})" for k, h, e in found[:_MOST_NAMED]]
    more = len(found) - len(names)
    rest = f", and {more} more" if more else ""
    verb = "stand" if len(found) > 1 else "stands"
    said = f"{joined(names)}{rest}"
    return Finding(
        f"{said[:1].upper()}{said[1:]} {verb} apart in distance to one; {middle}.", "which heads stand apart",
        {name: _stand_apart(profile, name, named) for name in order},
    )  # fmt: skip


def _stand_apart(profile: Profile, convention: str, named: list[tuple[int, int]]) -> Seen:
    """Whether the named heads stand apart under a convention, and the place of each by its distance to the median."""
    apart = {(k, h) for k, h, _ in outlying_heads(profile, convention)}
    away = _away(by_head(profile, "distance_to_one", convention))
    ranked = sorted(away, key=lambda place: -away[place])
    places = [f"layer {k} head {h} is number {ranked.index((k, h)) + 1}" for k, h in named if (k, h) in away]
    return Seen(
        set(named) <= apart, f"{joined(places)} of {len(ranked)} by distance to the median" if places else "no value"
    )


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
