"""The notebooks of the documentation: what is committed is what the scripts say, and the scripts run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import geoattn as ga
from geoattn._core.errors import GeoattnError

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
FOLDERS = {  # what a notebook needs beside geoattn
    "language_model": ["GEOATTN_MODELS/smollm2-135m"],
    "text_model": ["GEOATTN_MODELS/minilm", "GEOATTN_DATA/sst2"],
    "vision_model": ["GEOATTN_MODELS/dinov2-small"],
}
MOST_BYTES = 4_000_000  # all of them


def notebook(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def cells_of_script(name: str) -> list[str]:
    """The cells of a script in the percent format; Markdown without its comment signs."""
    cells = []
    for kind, body in re.findall(
        r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", (FOLDER / f"{name}.py").read_text(), re.S | re.M
    ):
        lines = body.strip().splitlines()
        cells.append("\n".join(re.sub(r"^# ?", "", line) for line in lines) if kind else "\n".join(lines))
    return cells


def test_there_are_ten() -> None:
    assert len(NAMES) == 10
    assert len(set(NAMES) - set(FOLDERS)) == 7


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_script_executed(name: str) -> None:
    cells = notebook(name)["cells"]
    assert ["".join(cell["source"]) for cell in cells] == cells_of_script(name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_comes_first_and_the_next_step_last(name: str) -> None:
    cells = notebook(name)["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    assert any("image/png" in output.get("data", {}) for output in first["outputs"])
    assert "".join(cells[0]["source"]).startswith("# ")
    assert "## What to try next" in "".join(cells[-1]["source"])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_machine_is_in_it(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users|private)/", text)


def test_they_are_small_and_in_the_gallery() -> None:
    assert sum((FOLDER / f"{name}.ipynb").stat().st_size for name in NAMES) < MOST_BYTES
    gallery = (FOLDER / "index.md").read_text(encoding="utf-8")
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"({name}.md)" in gallery
        assert f": notebooks/{name}.md\n" in navigation
        assert (DOCS / "images" / "notebooks" / f"{name}.png").exists()


def missing_folders(name: str) -> list[str]:
    places = [place.split("/") for place in FOLDERS.get(name, [])]
    return ["/".join(p) for p in places if not (Path(os.environ.get(p[0], "models")) / p[1]).is_dir()]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_notebook_without_its_folder_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    """In its first words, with the command to copy, and in the last line of the error."""
    first = " ".join("".join(notebook(name)["cells"][0]["source"]).split())
    folder = Path(FOLDERS[name][0]).name
    assert re.search(rf"`hf download [\w-]+/[\w.-]+ --local-dir models/{folder}`", first)
    bare = {key: value for key, value in os.environ.items() if key not in ("GEOATTN_DATA", "GEOATTN_MODELS")}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")], cwd=tmp_path, capture_output=True, text=True,
        env={**bare, "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"there is no folder models/{folder}. Get the model first: hf download" in last
    assert f"--local-dir models/{folder}" in last


def test_the_data_of_a_notebook_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = re.search(
        r'hf download \S+ --repo-type dataset --include "sst2/\*" --local-dir', " ".join(cells_of_script("text_model"))
    )
    assert said
    monkeypatch.setattr("geoattn.datasets.hub.hub_reachable", lambda: False)
    for place in (None, str(tmp_path)):
        monkeypatch.setenv("GEOATTN_DATA", place) if place else monkeypatch.delenv("GEOATTN_DATA", raising=False)
        with pytest.raises(GeoattnError, match=re.escape(said.group())):
            ga.load_data("sst2", split="test", limit=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str) -> None:
    if missing := missing_folders(name):
        pytest.skip(f"needs {', '.join(missing)}")
    pytest.importorskip("nbclient")
    done = subprocess.run(
        [sys.executable, str(DOCS / "make_notebooks.py"), "--check", name], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"{name}: " in done.stdout
