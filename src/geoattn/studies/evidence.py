"""The findings of all studies below a folder of results, with how far each study has come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.text_files import read_json
from geoattn.studies.catalogue import STUDIES, find_study
from geoattn.studies.claims import claims

__all__ = ["Evidence", "read_progress", "read_results"]

_SIZES = ("paper", "small")  # a smoke run is no evidence


@dataclass(frozen=True)
class Evidence:
    """A finding with the study that it comes from; ``done`` and ``planned`` trials of that study.

    ``beside``: in words, where the study differs from the paper and the accuracy that its models reached.
    """

    study: str
    size: str
    how: str
    finding: dict[str, Any]
    done: int = 0
    planned: int = 0
    beside: str = ""


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
            about = read_json(path)
            planned = int(about.get("trials", 0))
            counts = (int(about.get("done", planned)), planned)
            beside = _beside(about)
            found += [
                Evidence(name, size, about.get("how", ""), finding, *counts, beside) for finding in about["findings"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise GeoattnError(f"{path} cannot be read ({error}): run the study again.") from None
    return found


def read_progress(root: Path) -> dict[str, tuple[int, int]]:
    """Trials done and planned at the paper's size of each study that an endpoint names, with findings or without."""
    found = {}
    for name in dict.fromkeys(claim.endpoint.study for claim in claims() if claim.endpoint is not None):
        if name not in STUDIES:
            continue
        path = root / name / "paper" / f"{name}.json"
        if path.is_file():
            about = read_json(path)
            planned = int(about["trials"])
            found[name] = (int(about.get("done", planned)), planned)
        else:
            found[name] = (0, len(find_study(name).configs("paper")))
    return found


def _beside(about: dict[str, Any]) -> str:
    reached = ", ".join(f"{name} {value:.3f}" for name, value in about.get("accuracy", {}).items())
    parts = [
        f"Deviations from the paper: {about['deviations']}" if about.get("deviations") else "",
        f"Mean test accuracy reached: {reached}." if reached else "",
    ]
    return " ".join(filter(None, parts))
