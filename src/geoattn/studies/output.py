"""What a study writes beside its trials: table, findings and figure, derived from the trials alone."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn.curvature.result import write_atomically
from geoattn.errors import GeoattnError
from geoattn.runs.store import Store
from geoattn.runs.versions import versions

if TYPE_CHECKING:
    from geoattn.studies.study import Finding, Study

__all__ = ["as_plain", "check_output", "write_output"]

Pairs = list[tuple[dict[str, Any], Any]]


def write_output(study: Study, size: str, store: Store, pairs: Pairs) -> list[Finding]:
    """Write NAME.csv, NAME.json and NAME.png; a file that says the same already is left alone."""
    findings = study.verdict(pairs)
    figure = io.BytesIO()
    study.figure(pairs).savefig(figure, format="png", dpi=120, metadata={"Software": None})
    contents = {
        "csv": _table(study, pairs),
        "json": _dump({**_about(study, size, findings), "provenance": _provenance(store, pairs)}),
        "png": figure.getvalue(),
    }
    for kind, content in contents.items():
        path = store.folder / f"{study.name}.{kind}"
        if not (path.is_file() and path.read_bytes() == content):
            write_atomically(path, lambda file, content=content: file.write(content))
    return findings


def check_output(study: Study, size: str, store: Store) -> list[str]:
    """Derive table and findings from the stored trials once more and compare the bytes; a sentence for each difference.

    The provenance is not compared: it says with what the numbers were made, and another machine may check them.
    """
    configs = study.configs(size)
    status = store.status(configs)
    if status.done < status.total:
        missing = f"{status.total - status.done} of {status.total} trials are missing"
        damaged = f", {status.damaged} of them damaged" if status.damaged else ""
        return [f"{missing}{damaged}: run the study to do them"]
    pairs = [(config, store.read(config)) for config in configs]
    found = []
    for kind, derived in (("csv", _table(study, pairs)), ("json", _dump(_about(study, size, study.verdict(pairs))))):
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
        if written != derived:
            found.append(f"{path} is not what the trials give: {_first_difference(written, derived)}")
    return found


def as_plain(finding: Finding) -> dict[str, Any]:
    """A finding for JSON: bounds that are not finite become null."""
    content = dict(vars(finding))
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in content.items()}


def _table(study: Study, pairs: Pairs) -> bytes:
    return study.table(pairs).to_csv(index=False, lineterminator="\n").encode()


def _about(study: Study, size: str, findings: list[Finding]) -> dict[str, Any]:
    return {
        "study": study.name, "version": study.version, "size": size, "paper": study.paper, "place": study.place,
        "how": study.how, "trials": len(study.configs(size)), "findings": [as_plain(f) for f in findings],
    }  # fmt: skip


def _provenance(store: Store, pairs: Pairs) -> dict[str, Any]:
    """Versions of the table, and those of the trials where they are others: a store may outlive a version."""
    made: list[Any] = []
    for config, _ in pairs:
        content = store.content(config)
        with_what = None if content is None else content.get("made_with")
        if with_what is not None and with_what not in made:
            made.append(with_what)
    return {"table": versions(), "trials": sorted(made, key=lambda one: json.dumps(one, sort_keys=True))}


def _dump(content: Any) -> bytes:
    try:
        return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise GeoattnError(f"findings must be plain JSON: {error}.") from None


def _first_difference(written: bytes, derived: bytes) -> str:
    old, new = (text.decode(errors="replace").splitlines() for text in (written, derived))
    for number, (a, b) in enumerate(zip(old, new, strict=False), 1):
        if a != b:
            return f"line {number} says {a.strip()[:120]!r}, the trials say {b.strip()[:120]!r}"
    return f"it has {len(old)} lines, the trials give {len(new)}"
