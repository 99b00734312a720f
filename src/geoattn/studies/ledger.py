"""The claims ledger: one line per claim, a page of details for each, and one forest plot."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

from geoattn.studies.claims import Endpoint, claims, papers
from geoattn.studies.evidence import Evidence, read_progress, read_results
from geoattn.studies.paper_table import table_1
from geoattn.studies.verdicts import Judged, judge_claims

__all__ = ["claims_figures", "claims_page", "claims_pages", "forest_plot"]

_ORDER = ("replicated", "contradicted", "depends on the convention", "inconclusive", "not testable here",
          "theorem checked")  # fmt: skip
_COLOURS = dict(zip(_ORDER, ("tab:green", "tab:red", "tab:purple", "tab:gray", "lightgray", "tab:blue"), strict=True))
_HALF = ", minus one half"  # of a share that is judged by whether it is above or below one half
_HEAD = """# The claims, and what came out

This page has one line for each claim of the three papers. `geoattn study ledger --out docs/claims.md` writes it, the
pages behind the numbers and the plot from `results/`.

Each claim of an observation has one primary endpoint. The endpoint is fixed in `claims.toml` before the trials that
test it; where it was amended later, the page of the claim says when. An effect is written so that the claim says that
it is above 0; brackets are 95 % intervals. Effects are pooled over data sets by a random-effects mean with equal
weights. Runs are paired by seed. A seed counts once: the error of a pooled effect is never below that of whole seeds.
With three to six seeds intervals are those of Student's t, because a bootstrap over so few is too narrow; the page of a
claim has the bootstrap over whole seeds beside it. P-values are corrected by Holm's method over all claims that are, or
are going to be, judged by an interval. *Sees*: the smallest true effect that the design finds with a power of 80 %,
before that correction. The page of a claim has the accuracy that the models reached and where the study differs from
the paper.

* *replicated*: the effect is above 0 after correction. *Contradicted*: it is below 0, or the interval holds 0 and ends
  below the paper's own effect, in a design that could have seen that.
* *inconclusive*: neither. Where the data sets or models of a pooled effect are clear one by one, the line says on which
  side, by intervals that are widened for their number. The page of the claim says where the design could not have seen
  the paper's effect. An unfinished study shows its effect so far, and no verdict.
* *depends on the convention*: curvature has several definitions ([conventions](conventions.md)), and the effect is
  above 0 under one and below 0 under another, by intervals that are widened for the number of conventions.
* *theorem checked*: there is a proof, and tests or trials check it on examples. *Not testable here*: the page of the
  claim says why.

![All effects that have an interval](images/claims.png)
"""


def claims_page(root: Path) -> str:
    """The ledger as Markdown.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from geoattn.studies import claims_page
    >>> text = claims_page(Path(tempfile.mkdtemp()))  # no results there
    >>> "claim" in text.lower()
    True
    """
    judged = _judged(root)
    counts = {v: sum(one.verdict == v for one in judged) for v in _ORDER}
    parts = [_HEAD, "Of {} claims: {}.\n".format(
        len(judged), ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))]  # fmt: skip
    for paper, title in papers().items():
        mine = [one for one in judged if one.claim.paper == paper]
        observed = [one for one in mine if one.claim.kind == "observation"]
        checked = [one for one in mine if one.claim.kind != "observation"]
        parts.append(f"## {title}\n")
        if observed:
            parts.append(_table(["", "claim", "effect", "n", "paper's", "sees", "verdict"], map(_line, observed)))
        if checked:
            parts.append("Theorems and assumptions:\n")
            parts.append(_table(["", "statement", "checks", "verdict"], map(_check_line, checked)))
    return "\n".join(parts)


def claims_pages(root: Path) -> dict[str, str]:
    """The page of each claim by its number."""
    table, figures = table_1(root), claims_figures(root)
    return {
        one.claim.id: _page(one, table if one.claim.place.endswith("Table 1") else "", figures) for one in _judged(root)
    }


def claims_figures(root: Path) -> dict[str, Path]:
    """The figure of each study that an endpoint names, where it is drawn at the paper's size."""
    studies = dict.fromkeys(claim.endpoint.study for claim in claims() if claim.endpoint is not None)
    drawn = {study: root / study / "paper" / f"{study}.png" for study in studies}
    return {study: path for study, path in drawn.items() if path.is_file()}


def forest_plot(root: Path) -> Any:
    """All effects with an interval, over half the width of the interval: beyond one of them 0 is outside."""
    from matplotlib.figure import Figure

    judged = [one for one in _judged(root) if one.low is not None and one.high is not None]
    figure = Figure(figsize=(7.0, 0.22 * len(judged) + 1.0), layout="constrained")
    ax = figure.subplots()
    for place, one in enumerate(judged):
        assert one.effect is not None
        assert one.low is not None
        assert one.high is not None
        half = (one.high - one.low) / 2 or 1.0
        middle = max(min(one.effect / half, 12.0), -12.0)
        ax.plot([middle - 1, middle + 1], [-place, -place], color=_COLOURS[one.verdict], lw=1.5)
        ax.plot([middle], [-place], "s", ms=4, color=_COLOURS[one.verdict])
        end = one.claim.endpoint
        if end is not None and end.paper_effect is not None:
            ax.plot([max(min(end.paper_effect / half, 12.0), -12.0)], [-place], "x", color="black", ms=5)
    ax.axvline(0, color="black", lw=0.8)
    ax.set_yticks([-k for k in range(len(judged))], [one.claim.id for one in judged], fontsize=7)
    ax.set_xlabel("effect over half the width of its 95 % interval (x: the paper's effect); above 0: as claimed")
    handles = [ax.plot([], [], color=_COLOURS[v], label=v)[0] for v in _ORDER[:4]]
    ax.legend(handles=handles, fontsize=7, loc="lower right")
    return figure


def _judged(root: Path) -> list[Judged]:
    return judge_claims(read_results(root), read_progress(root))


def _line(one: Judged) -> list[str]:
    end = one.claim.endpoint
    paper = "" if end is None or end.paper_effect is None else _number(end.paper_effect)
    seen = "" if one.detectable is None else _number(one.detectable).lstrip("+")
    return [_link(one), one.claim.says, _effect(one), str(one.trials or ""), paper, seen, _verdict(one)]


def _check_line(one: Judged) -> list[str]:
    return [_link(one), one.claim.says, one.primary.split(";")[0].split("/")[-1], one.verdict]


def _verdict(one: Judged) -> str:
    if one.unfinished:
        return f"{one.verdict}; {_unfinished(one)}"
    sides = str(one.sides or "") if one.verdict == "inconclusive" else ""
    return f"{one.verdict}; {sides}" if sides else one.verdict


def _unfinished(one: Judged) -> str:
    assert one.unfinished is not None
    return f"unfinished: {one.unfinished[0]} of {one.unfinished[1]} trials"


def _link(one: Judged) -> str:
    return f"[{one.claim.id}](claims/{one.claim.id}.md)"


def _effect(one: Judged) -> str:
    if one.effect is None:
        return ""
    if one.low is None or one.high is None:
        return _number(one.effect)
    return f"{_number(one.effect)} [{_number(one.low)}, {_number(one.high)}]"


def _page(one: Judged, table: str, figures: Container[str]) -> str:
    claim, end = one.claim, one.claim.endpoint
    parts = [
        f"# {claim.id}: {_verdict(one)}\n",
        f"{claim.says} ({claim.kind}; {papers()[claim.paper]}, {claim.place}.)\n",
    ]
    parts += [f"{text}\n" for text in dict.fromkeys((claim.note, one.reason)) if text]
    if claim.checked_by:
        parts.append(f"Checked by `{claim.checked_by}`.\n")
    if end is not None:
        under = f" under {end.convention}" if end.convention else ""
        parts.append(
            f"Primary endpoint, fixed on {end.fixed} (hash `{end.hash}`): {end.number.replace('_', ' ')},"
            f" {end.more} minus {end.less}, of study `{end.study}`, {end.data}{under}.\n"
        )
        if end.margin:
            parts.append(
                f"The claim is that the difference is above -{end.margin:g}; the effect is given above that.\n"
            )
        if end.paper:
            printed = ", ".join(f"{name} {_number(value)}" for name, value in end.paper.items())
            parts.append(f"The paper prints: {printed}.\n")
    if one.effect is not None:
        corrected = "" if one.p is None else f" p = {one.p:.2g} after correction over the claims."
        seen = (
            ""
            if one.detectable is None
            else f" The design sees effects from {one.detectable:.2g} on, before that correction."
        )
        resampled = ""
        if one.bootstrap is not None:
            low, high = map(_number, one.bootstrap)
            unit = "rows" if end is not None and end.study == "pretrained-forward" else "seeds"
            resampled = f" A bootstrap over whole {unit} gives [{low}, {high}] on these data sets."
        freedom = "" if one.freedom is None else f" (degrees of freedom: {one.freedom})"
        parts.append(
            f"Effect ({one.primary}): {_effect(one)}, n = {one.trials}{freedom}.{corrected}{seen}{resampled}\n"
        )
        if one.sides is not None and one.sides.count:
            words = str(one.sides) or "0 is within all of them"
            parts.append(f"One by one, with {one.sides.count} intervals that are widened for their number: {words}.\n")
        if end is not None and (legs := _against_none(one.support, end)):
            parts.append(f"Against a run without it: {legs}.\n")
    if end is not None and end.study in figures:
        parts.append(f"![Figure of the study {end.study}](figures/{end.study}.png)\n")
    if table:
        parts.append(f"## Table 1 beside the paper's\n\n{table}")
    if one.support:
        observed = claim.kind == "observation"
        parts.append("## All findings\n" if observed else "## All checks\n")
        parts += _findings(one.support) if observed else [_checks(one.support)]
        for study, how, beside in dict.fromkeys((e.study, e.how, e.beside) for e in one.support):
            words = " ".join(filter(None, (f"{how}{_progress(study, one.support)}", beside)))
            parts.append(f"* `{study}`: {words}")
        parts.append("")
    return "\n".join(parts)


def _against_none(support: tuple[Evidence, ...], end: Endpoint) -> str:
    """The same number between each arm of the endpoint and none."""
    wanted = [end.number, end.data, end.convention]
    legs = [f for e in support if [(f := e.finding).get(k) for k in ("number", "data", "convention")] == wanted]
    return "; ".join(f"{f['more']} minus {f['less']} {_value(f)}" for f in legs if "none" in (f["more"], f["less"]))


def _progress(study: str, support: tuple[Evidence, ...]) -> str:
    done, planned = next((e.done, e.planned) for e in support if e.study == study)
    return f" {done} of {planned} trials are done." if done < planned else ""


def _findings(support: tuple[Evidence, ...]) -> list[str]:
    """A table for each study and number: a row for each data set, a column for each convention."""
    parts = []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for e in support:
        what = str(e.finding.get("measure") or e.finding["claim"])
        groups.setdefault((f"{e.study} ({e.size})", what), []).append(e.finding)
    for (study, what), findings in groups.items():
        conventions = list(dict.fromkeys(f.get("convention") or "" for f in findings))
        rows: dict[tuple[str, str, int], dict[str, str]] = {}
        for f in findings:
            place = (str(f["data"]), str(f["trials"]))
            again = sum(key[:2] == place and (f.get("convention") or "") in row for key, row in rows.items())
            rows.setdefault((*place, again), {})[f.get("convention") or ""] = _value(f)
        head = ["data", "n", *(name or "effect" for name in conventions)]
        lines = [[data, n, *(row.get(c, "") for c in conventions)] for (data, n, _), row in rows.items()]
        parts += [f"`{study}`: {what}\n", _table(head, lines)]
    return parts


def _checks(support: tuple[Evidence, ...]) -> str:
    """A row for each check of a theorem or an assumption. Cases are no sample, so that there is no interval."""
    words = {"replicated": "holds", "contradicted": "does not hold"}
    lines = []
    for e in support:
        f = e.finding
        what = f"{f['claim']}: {f['measure']}" if f.get("measure") else str(f["claim"])
        value = "" if f["difference"] is None else _number(f["difference"])
        if what.endswith(_HALF) and f["difference"] is not None:
            what, value = what.removesuffix(_HALF), f"{f['difference'] + 0.5:.0%}"
        under = f" ({f['convention']})" if f.get("convention") else ""
        lines.append([what + under, str(f["data"]), str(f["trials"]), value, words.get(f["verdict"], "undecided")])
    return _table(["check", "on", "cases", "mean", "outcome"], lines)


def _value(finding: dict[str, Any]) -> str:
    value = "" if finding["difference"] is None else _number(finding["difference"])
    if finding["low"] is not None and finding["high"] is not None:
        value += f" [{_number(finding['low'])}, {_number(finding['high'])}]"
    return value


def _table(head: list[str], lines: Any) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return (
        "\n".join("| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in row) + " |" for row in rows)
        + "\n"
    )


def _number(value: float) -> str:
    return f"{value:+.2g}" if value else "0"
