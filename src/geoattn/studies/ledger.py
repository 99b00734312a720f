"""The claims ledger: every claim of the papers in one row, with what came out when it was tested here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoattn.errors import GeoattnError
from geoattn.studies.claims import Claim, claims, papers

__all__ = ["Evidence", "claims_page", "overall", "read_results"]

_SIZES = ("paper", "small")  # a smoke run is no evidence
_PRESETS = ("markov", "hop", "grc-0.6", "grc-0.5")
_TRIMMED = "zeros and outliers left out"
_LINES = 6  # effects that are told in a row of the ledger; all of them are below

_HEAD = """# The claims, and what came out

Each claim of the three papers in one row: what it says, where, how it was tested here, with what data and size, the
effect with its 95 % interval, under which conventions it holds, and the verdict. This page is written by `geoattn study
ledger --out docs/claims.md` from `results/`; a test compares the two.

Every effect is written so that the claim says it is above 0. *Replicated*: the interval lies above 0. *Contradicted*:
it lies below. *Not replicated*: it contains 0, or there are too few trials for an interval. *Depends on the
convention*: replicated under some presets of curvature and not under others ([what they are](conventions.md)).
*Depends on the data*: replicated on some data sets or measures, not on others. *Theorem, checked*: there is a proof,
and tests of this project check it on examples. *Not tested yet*: no result at size small or paper. Small runs are
small: read the number of trials with the verdict. Intervals are not corrected for the number of claims.
"""


@dataclass(frozen=True)
class Evidence:
    """A finding with the study that it comes from."""

    study: str
    size: str
    how: str
    finding: dict[str, Any]

    @property
    def effect(self) -> str:
        """Difference and interval in words."""
        f = self.finding
        value = "none" if f["difference"] is None else _number(f["difference"])
        if f["low"] is None or f["high"] is None:
            return f"{value} (no interval, n = {f['trials']})"
        return f"{value} [{_number(f['low'])}, {_number(f['high'])}], n = {f['trials']}"


def read_results(root: Path) -> list[Evidence]:
    """All findings below ROOT/NAME/SIZE/NAME.json, of the largest size of each study."""
    if not root.is_dir():
        raise GeoattnError(f"no results in {root}: it must be the folder that holds NAME/SIZE/NAME.json.")
    found: list[Evidence] = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        name = folder.name
        size = next((size for size in _SIZES if (folder / size / f"{name}.json").is_file()), None)
        if size is None:
            continue
        path = folder / size / f"{name}.json"
        try:
            about = json.loads(path.read_bytes())
            found += [Evidence(name, size, about.get("how", ""), finding) for finding in about["findings"]]
        except (ValueError, KeyError, TypeError) as error:
            raise GeoattnError(f"{path} cannot be read ({error}): run the study again.") from None
    return found


def overall(claim: Claim, evidence: list[Evidence]) -> str:
    """The verdict on a claim from all that speaks to it; what the paper's plots leave out is not left out here."""
    whole = [e for e in evidence if _TRIMMED not in e.finding.get("measure", "")]
    if not whole:
        return "theorem, checked" if claim.checked_by else "not tested yet"
    presets = {_together(found) for name, found in _by_preset(whole).items() if name is not None}
    if "replicated" in presets and len(presets) > 1:
        return "depends on the convention"
    return _together(whole)


def _together(found: list[Evidence]) -> str:
    seen = {e.finding["verdict"] for e in found}
    if len(seen) == 1:
        return seen.pop()
    return "depends on the data" if "replicated" in seen else "not replicated"


def _by_preset(found: list[Evidence]) -> dict[str | None, list[Evidence]]:
    groups: dict[str | None, list[Evidence]] = {}
    for e in found:
        groups.setdefault(e.finding.get("convention"), []).append(e)
    return groups


def claims_page(root: Path) -> str:
    """The ledger as Markdown."""
    evidence = read_results(root)
    parts, used = [_HEAD, _overview(evidence)], set()
    for paper, title in papers().items():
        parts.append(f"## {title}\n\n{_row(_COLUMNS)}\n{_row(['---'] * len(_COLUMNS))}")
        for claim in claims():
            if claim.paper == paper:
                speaks = [e for e in evidence if claim.is_tested_by(e.study, str(e.finding["claim"]))]
                used |= {id(e) for e in speaks}
                parts[-1] += "\n" + _row(_cells(claim, speaks))
        parts[-1] += "\n"
    others = [e for e in evidence if id(e) not in used]
    parts.append(_details("Questions of our own", "Findings that no claim of the papers asks for.", others))
    parts.append(_details("Every finding", "All that the rows above are made of, study by study.",
                          [e for e in evidence if id(e) in used]))  # fmt: skip
    return "\n".join(parts)


_COLUMNS = ["", "claim", "where", "how it was tested", "data and size", "effect", "conventions", "verdict"]


def _overview(evidence: list[Evidence]) -> str:
    counts: dict[str, int] = {}
    for claim in claims():
        verdict = overall(claim, [e for e in evidence if claim.is_tested_by(e.study, str(e.finding["claim"]))])
        counts[verdict] = counts.get(verdict, 0) + 1
    lines = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items(), key=lambda item: -item[1]))
    return f"Of {len(claims())} claims: {lines}.\n"


def _cells(claim: Claim, found: list[Evidence]) -> list[str]:
    says = f"{claim.says} ({claim.kind})" + (f" *{claim.note}*" if claim.note else "")
    if not found:
        how = f"`{claim.checked_by}`" if claim.checked_by else ""
        return [claim.id, says, claim.place, how, "", "", "", overall(claim, found)]
    studies = dict.fromkeys((e.study, e.size) for e in found)
    how = "<br>".join(f"[{study}](#{study})" for study, _ in studies)
    data = "; ".join(
        dict.fromkeys(str(e.finding["data"]) for e in found if _TRIMMED not in e.finding.get("measure", ""))
    )
    sizes = "/".join(dict.fromkeys(size for _, size in studies))
    return [
        claim.id, says, claim.place, how, f"{_short(data)} ({sizes})", "<br>".join(_effects(found)),
        "<br>".join(_conventions(found)), f"**{overall(claim, found)}**",
    ]  # fmt: skip


def _effects(found: list[Evidence]) -> Iterator[str]:
    """A few effects: one per study, claim and data, under the first preset that was used."""
    told: dict[tuple[Any, ...], Evidence] = {}
    rank = {name: number for number, name in enumerate(_PRESETS)}
    for e in sorted(found, key=lambda e: rank.get(str(e.finding.get("convention")), -1)):
        if _TRIMMED not in e.finding.get("measure", ""):
            told.setdefault((e.study, e.finding["claim"], e.finding["data"]), e)
    for e in list(told.values())[:_LINES]:
        preset = e.finding.get("convention")
        yield f"{_short(str(e.finding['data']), 40)}{f' ({preset})' if preset else ''}: {e.effect}"
    if len(told) > _LINES:
        yield f"and {len(told) - _LINES} more"
    left_out = [e for e in found if _TRIMMED in e.finding.get("measure", "")]
    if left_out:
        yield f"{len(left_out)} verdicts turn when {_TRIMMED}, as in the paper's plots"


def _conventions(found: list[Evidence]) -> Iterator[str]:
    groups = _by_preset([e for e in found if _TRIMMED not in e.finding.get("measure", "")])
    for preset in (*_PRESETS, *sorted(name for name in groups if name is not None and name not in _PRESETS)):
        if preset in groups:
            good = sum(e.finding["verdict"] == "replicated" for e in groups[preset])
            bad = sum(e.finding["verdict"] == "contradicted" for e in groups[preset])
            yield f"{preset}: holds in {good} of {len(groups[preset])}" + (f", opposite in {bad}" if bad else "")


def _details(title: str, about: str, found: list[Evidence]) -> str:
    if not found:
        return ""
    text = f"## {title}\n\n{about}\n"
    for study in dict.fromkeys(e.study for e in found):
        mine = [e for e in found if e.study == study]
        anchor = f" {{ #{study} }}" if title == "Every finding" else ""
        text += f"\n### {study}{anchor}\n\nSize {mine[0].size}. {mine[0].how}\n\n"
        text += _row(["claim", "data", "convention", "effect", "of what", "verdict"]) + "\n" + _row(["---"] * 6) + "\n"
        for e in mine:
            f = e.finding
            cells = [f["claim"], f["data"], f.get("convention") or "", e.effect, f.get("measure", ""), f["verdict"]]
            text += _row([str(cell) for cell in cells]) + "\n"
    return text


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[: most - 4].rstrip() + " ..."


def _number(value: float) -> str:
    return f"{value:+.3g}" if value else "0"
