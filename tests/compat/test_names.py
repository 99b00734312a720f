"""Names, arguments, defaults and attributes of GraphRicciCurvature's classes, and its own tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

import geoattn.compat
from tests.compat.test_grc import HERE, script

ROOT = Path(__file__).parents[2]
PEER = ROOT / ".venv-grc-0.6.1"
KNOWN = json.loads((HERE / "grc-0.6.1.json").read_text())


@pytest.mark.parametrize("name", ["OllivierRicci", "FormanRicci"])
def test_every_name_argument_default_and_attribute(name: str) -> None:
    kind = getattr(geoattn.compat, name)
    assert kind.__name__ == name
    found, known = script().names_of(kind), KNOWN["names"][name]
    # proc: the peer's default is a number that is fixed when it is imported, ours is looked up when it is needed
    found["methods"]["__init__"].update({k: v for k, v in {"proc": "processors"}.items() if name == "OllivierRicci"})
    assert found == known
    for method, arguments in found["methods"].items():
        assert list(arguments) == list(known["methods"][method])  # the same order


def test_attributes_hold_what_was_given() -> None:
    settings = {
        "weight": "length", "alpha": 0.3, "method": "OTD", "base": 2.0, "exp_power": 1, "proc": 1, "chunksize": 5,
        "shortest_path": "pairwise", "cache_maxsize": 10, "nbr_topk": 7,
    }  # fmt: skip
    graph = nx.path_graph(3)
    orc = geoattn.compat.OllivierRicci(graph, **settings)
    assert {name: getattr(orc, name) for name in settings} == settings
    assert orc.G is not graph
    assert graph[0][1] == {}  # the graph that was given is not touched
    assert orc.lengths == orc.densities == {}


@pytest.mark.slow
def test_the_numbers_are_those_of_the_package(tmp_path: Path) -> None:
    """The script once more, in the environment of the peer."""
    if not (PEER / "bin" / "python").exists():
        pytest.skip("no environment of GraphRicciCurvature 0.6.1: make .venv-grc-0.6.1/.stamp-deps")
    target = tmp_path / "again.json"
    subprocess.run([PEER / "bin" / "python", HERE / "make_references.py", target], check=True, capture_output=True)
    again = json.loads(target.read_text())
    assert again["names"] == KNOWN["names"]
    assert numbers(again["graphs"]) == pytest.approx(numbers(KNOWN["graphs"]), abs=1e-9)
    assert words(again["graphs"]) == words(KNOWN["graphs"])


@pytest.mark.slow
def test_its_own_tests_pass_after_one_changed_import(tmp_path: Path) -> None:
    source = PEER / "source" / "test"
    if not source.is_dir():
        pytest.skip(
            "the tests of GraphRicciCurvature 0.6.1 are not here: make .venv-grc-0.6.1/.stamp-deps fetches them"
        )
    for name in ("OllivierRicci", "FormanRicci"):
        text = (source / f"test_{name}.py").read_text()
        changed = text.replace(f"from GraphRicciCurvature.{name} import {name}", f"from geoattn.compat import {name}")
        assert changed != text
        (tmp_path / f"test_{name}.py").write_text(changed)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    assert "14 passed" in done.stdout


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [float(value)] if isinstance(value, (int, float)) else []


def words(value: object) -> list[str]:
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, list):
        return [word for part in value for word in words(part)]
    return [value] if isinstance(value, str) else []
