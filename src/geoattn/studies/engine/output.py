"""What a study writes beside its trials: table, findings and figure, derived from the trials alone."""

from __future__ import annotations

import io
import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.versions import versions
from geoattn.runs.store import Store
from geoattn.studies.claims import claims

if TYPE_CHECKING:
    from geoattn.studies.engine.finding import Finding
    from geoattn.studies.engine.study import Study

__all__ = ["as_plain", "check_output", "write_output"]

Pairs = list[tuple[dict[str, Any], Any]]
_FIELD = re.compile(r"[,:\s]+")
_OPTIONAL = ("number", "more", "less", "p", "detectable", "bootstrap_low", "bootstrap_high", "freedom")
_CLOSE = 1e-8  # relative difference of two numbers that say the same


def write_output(study: Study, size: str, store: Store, pairs: Pairs) -> list[Finding]:
    """Write NAME.csv, NAME.json and NAME.png; a file that says the same already is left alone."""
    findings = study.verdict(pairs)
    figure = io.BytesIO()
    study.figure(pairs).savefig(figure, format="png", dpi=120, metadata={"Software": None})
    contents = {
        "csv": _table(study, pairs),
        "json": _dump({**_about(study, size, findings, pairs), "provenance": _provenance(store, pairs)}),
        "png": figure.getvalue(),
    }
    for kind, content in contents.items():
        path = store.folder / f"{study.name}.{kind}"
        if not (path.is_file() and path.read_bytes() == content):
            write_atomically(path, lambda file, content=content: file.write(content))
    return findings


def check_output(study: Study, size: str, store: Store) -> list[str]:
    """Derive table and findings from the stored trials once more and compare; a sentence for each difference.

    Numbers are written with ten digits and must agree to eight: another processor sums in another order.

    The provenance is not compared: it says with what the numbers were made, and another machine may check them.
    """
    configs = study.configs(size)
    if study.partial:
        configs = [config for config in configs if store.is_done(config)]
    status = store.status(configs)
    if status.done < status.total:
        missing = f"{status.total - status.done} of {status.total} trials are missing"
        damaged = f", {status.damaged} of them damaged" if status.damaged else ""
        return [f"{missing}{damaged}: run the study to do them"]
    pairs = [(config, store.read(config)) for config in configs]
    found = []
    for kind, derived in (
        ("csv", _table(study, pairs)),
        ("json", _dump(_about(study, size, study.verdict(pairs), pairs))),
    ):
        path = store.folder / f"{study.name}.{kind}"
        try:
            written = path.read_bytes()
            if kind == "json":
                content = json.loads(written)
                content.pop("provenance", None)
                written = _dump(content)
        except FileNotFoundError:
            found.append(f"{path} is missing: run the study to write it")
            continue
        except (OSError, ValueError, AttributeError) as error:
            found.append(f"{path} cannot be read ({error}): run the study to write it anew")
            continue
        different = None if written == derived else _first_difference(written, derived)
        if different is not None:
            found.append(f"{path} is not what the trials give: {different}")
    return found


def as_plain(finding: Finding) -> dict[str, Any]:
    """A finding for JSON: ten significant digits, null for what is not finite; unused fields are left out."""
    content = {k: v for k, v in vars(finding).items() if k not in _OPTIONAL or v not in (None, "")}
    return {k: _rounded(v) if isinstance(v, float) else v for k, v in content.items()}


def _rounded(value: float) -> float | None:
    """Ten significant digits: sums differ in the last ones from machine to machine."""
    return float(f"{value:.10g}") if np.isfinite(value) else None


def _table(study: Study, pairs: Pairs) -> bytes:
    return study.table(pairs).to_csv(index=False, lineterminator="\n", float_format="%.10g").encode()


def _about(study: Study, size: str, findings: list[Finding], pairs: Pairs) -> dict[str, Any]:
    """What is written beside the table. The endpoints are in it: one that is changed later differs by its hash."""
    more: dict[str, Any] = {"done": len(pairs)} if study.partial else {}
    if study.deviations:
        more["deviations"] = study.deviations
    if study.accuracy is not None:
        more["accuracy"] = {name: _rounded(value) for name, value in study.accuracy(pairs).items()}
    ends = [(claim.id, claim.endpoint) for claim in claims() if claim.endpoint and claim.endpoint.study == study.name]
    if ends and size == "paper":
        more["endpoints"] = [{"claim": name, "fixed": str(end.fixed), "hash": end.hash} for name, end in ends]
    return {
        "study": study.name, "version": study.version, "size": size, "paper": study.paper, "place": study.place,
        "how": study.how, "trials": len(study.configs(size)), **more, "findings": [as_plain(f) for f in findings],
    }  # fmt: skip


def _provenance(store: Store, pairs: Pairs) -> dict[str, Any]:
    """Versions of the table, and those of the trials where they are others: a store may outlive a version."""
    made: list[Any] = []
    for config, _ in pairs:
        content = store.content(config)
        with_what = None if content is None else content.get("made_with")
        if with_what is not None:  # seconds differ from trial to trial
            with_what = {key: value for key, value in with_what.items() if key != "seconds"}
        if with_what is not None and with_what not in made:
            made.append(with_what)
    return {"table": versions(), "trials": sorted(made, key=lambda one: json.dumps(one, sort_keys=True))}


def _dump(content: Any) -> bytes:
    try:
        return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise GeoattnError(f"findings must be plain JSON: {error}.") from None


def _first_difference(written: bytes, derived: bytes) -> str | None:
    """Where two texts differ, in words; None where all differences are numbers that agree to eight digits."""
    old, new = (text.decode(errors="replace").splitlines() for text in (written, derived))
    if len(old) != len(new):
        return f"it has {len(old)} lines, the trials give {len(new)}"
    for number, (a, b) in enumerate(zip(old, new, strict=True), 1):
        if a == b:
            continue
        ours, theirs = (_FIELD.split(line) for line in (b, a))
        if len(ours) != len(theirs):
            return f"line {number} says {a.strip()[:120]!r}, the trials say {b.strip()[:120]!r}"
        for place, (x, y) in enumerate(zip(theirs, ours, strict=True), 1):
            if x != y and not _agree(x, y):
                return f"line {number}, field {place} says {x.strip()[:80]!r}, the trials say {y.strip()[:80]!r}"
    return None


def _agree(x: str, y: str) -> bool:
    try:
        return math.isclose(float(x), float(y), rel_tol=_CLOSE, abs_tol=1e-12)
    except ValueError:
        return False
