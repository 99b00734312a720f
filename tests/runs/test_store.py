"""Run store: written once, claimed once, and clear about what is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn._core.versions import versions
from geoattn.runs.drive import compare_again, run_trials
from geoattn.runs.store import Store
from geoattn.runs.stored_trial import DamagedTrialError

SQUARE = "tests.runs.trials:square"
CONFIGS: list[dict[str, Any]] = [{"x": x} for x in range(6)]


def store(folder: Path, version: int = 1) -> Store:
    return Store(folder, "squares", version)


def contents(folder: Path) -> dict[str, dict[str, Any]]:
    """All that is stored of the trials, but for the seconds that they took."""
    found = {path.name: json.loads(path.read_bytes()) for path in (folder / "results").iterdir()}
    for content in found.values():
        assert content["made_with"].pop("seconds") >= 0
    return found


def test_results_in_order_and_only_once(tmp_path: Path) -> None:
    first = run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    assert first == [{"square": x * x} for x in range(6)]
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "results").iterdir()}
    assert run_trials(store(tmp_path), "small", CONFIGS, SQUARE) == first
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "results").iterdir()}
    assert store(tmp_path).status(CONFIGS).done == 6
    assert compare_again(store(tmp_path), CONFIGS, SQUARE) == []


def test_a_trial_says_with_what_it_was_made(tmp_path: Path) -> None:
    store(tmp_path).write({"x": 1}, {"square": 1})
    content = store(tmp_path).content({"x": 1})
    assert content is not None
    assert content["made_with"] == versions()


def test_a_claim_excludes_others_and_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom geoattn.runs.store import Store\n"
        "with Store(sys.argv[1], 'squares', 1).claim({'x': 1}) as mine:\n"
        "    sys.stdout.write(str(mine)); sys.stdout.flush(); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.read(4) == "True"
    with store(tmp_path).claim({"x": 1}) as mine:
        assert not mine
    assert store(tmp_path).status([{"x": 1}]).running == 1
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert store(tmp_path).deaths({"x": 1}) == 1
    with store(tmp_path).claim({"x": 1}) as mine:  # taken over
        assert mine
    assert store(tmp_path).deaths({"x": 1}) == 0


def test_a_second_result_must_be_equal(tmp_path: Path) -> None:
    store(tmp_path).write({"x": 1}, {"square": 1})
    store(tmp_path).write({"x": 1}, {"square": 1})
    with pytest.raises(GeoattnError, match="no pure function"):
        store(tmp_path).write({"x": 1}, {"square": 2})


def _half(text: str) -> str:
    return text[: len(text) // 2]


def _other_number(text: str) -> str:
    return text.replace('"square": ', '"square": 1')


def _other_trial(text: str) -> str:
    return text.replace('"x": ', '"x": 1')


@pytest.mark.parametrize(
    "spoil", [_half, _other_number, _other_trial, lambda _: "", lambda _: "[]", lambda _: "\0" * 9]
)
@pytest.mark.parametrize("warm", [True, False])
def test_a_damaged_result_is_noticed_kept_and_done_again(tmp_path: Path, spoil: Any, warm: bool) -> None:
    known = store(tmp_path)
    run_trials(known, "small", CONFIGS, SQUARE)
    before = contents(tmp_path)
    path = tmp_path / "results" / f"{known.key({'x': 3})}.json"
    bad = spoil(path.read_text())
    path.write_text(bad)
    seen = known if warm else store(tmp_path)  # one that read the good file before, and one that did not
    status = seen.status(CONFIGS)
    assert (status.done, status.damaged, status.waiting) == (5, 1, 0)
    with pytest.raises(DamagedTrialError, match="is damaged: the next run keeps it aside"):
        seen.read({"x": 3})
    with pytest.warns(GeoattnWarning, match=f"1 results in .* are damaged .{path.stem}.*done again"):
        run_trials(seen, "small", CONFIGS, SQUARE)
    assert contents(tmp_path) == before
    assert (tmp_path / "damaged" / path.name).read_text() == bad


def test_damaged_twice_both_are_kept(tmp_path: Path) -> None:
    for text in ("one", "two"):
        (tmp_path / "results").mkdir(exist_ok=True)
        (tmp_path / "results" / f"{store(tmp_path).key({'x': 1})}.json").write_text(text)
        with store(tmp_path).claim({"x": 1}) as mine:
            assert mine
    assert sorted(path.read_text() for path in (tmp_path / "damaged").iterdir()) == ["one", "two"]


def test_a_damaged_plan_is_kept_and_written_anew(tmp_path: Path) -> None:
    run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    plan = (tmp_path / "trials.json").read_bytes()
    (tmp_path / "trials.json").write_bytes(plan[:50])
    with pytest.warns(GeoattnWarning, match="was damaged"):
        run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    assert (tmp_path / "trials.json").read_bytes() == plan
    assert (tmp_path / "damaged" / "trials.json").read_bytes() == plan[:50]


def test_a_new_version_starts_anew_and_loses_nothing(tmp_path: Path) -> None:
    run_trials(store(tmp_path, 1), "small", CONFIGS, SQUARE)
    (tmp_path / "squares.csv").write_text("the table of version 1")
    old = contents(tmp_path)
    with pytest.warns(GeoattnWarning, match=r"holds version 1 of squares, this is version 2: its results stay"):
        run_trials(store(tmp_path, 2), "small", CONFIGS, SQUARE)
    new = contents(tmp_path)
    assert len(new) == 12
    assert {name: new[name] for name in old} == old
    assert (tmp_path / "version-1" / "squares.csv").read_text() == "the table of version 1"
    assert json.loads((tmp_path / "version-1" / "trials.json").read_text())["version"] == 1
    assert store(tmp_path, 1).read({"x": 2}) == {"square": 4}  # the old version still reads its own
    with pytest.warns(GeoattnWarning, match="holds version 2 of squares, this is version 1"):
        run_trials(store(tmp_path, 1), "small", CONFIGS, SQUARE)  # and going back repeats nothing
    assert contents(tmp_path) == new


def test_more_trials_of_the_same_study_keep_what_is_done(tmp_path: Path) -> None:
    run_trials(store(tmp_path), "small", CONFIGS[:3], SQUARE)
    before = contents(tmp_path)
    run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    after = contents(tmp_path)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before


def test_half_written_files_of_a_killed_process_are_cleared(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "claims").mkdir()
    half = tmp_path / "results" / f".{store(tmp_path).key({'x': 1})}.json.abc.part"
    half.write_text("{")
    with store(tmp_path).claim({"x": 1}) as mine:
        assert mine
    assert not half.exists()


def test_doing_it_again_finds_what_differs(tmp_path: Path) -> None:
    store(tmp_path).write({"x": 3}, {"square": 10})
    assert "stored {'square': 10}, now {'square': 9}" in compare_again(store(tmp_path), CONFIGS, SQUARE)[0]
    assert compare_again(store(tmp_path), CONFIGS, SQUARE, limit=0) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: run_trials(s, "small", CONFIGS, "tests.runs.trials:cube"), "no trial function"),
        (lambda s: run_trials(s, "small", CONFIGS, SQUARE, workers=0), "workers"),
        (lambda s: run_trials(s, "small", CONFIGS, SQUARE, backend="moon"), "backend must be local or ray"),
        (lambda s: run_trials(s, "small", CONFIGS, SQUARE, address="auto"), "that of a Ray cluster"),
        (lambda s: s.write({"x": 1}, {"y": float("nan")}), "plain JSON"),
        (lambda s: s.write({"x": 1}, None), "must return something"),
        (lambda s: (s.plan("small", CONFIGS), s.plan("paper", CONFIGS)), "holds size small of squares, not paper"),
        (lambda s: (s.plan("small", CONFIGS), Store(s.folder, "cubes", 1).plan("small", CONFIGS)), "study squares"),
    ],
)
def test_bad_input(tmp_path: Path, call: Any, message: str) -> None:
    with pytest.raises(GeoattnError, match=message):
        call(store(tmp_path))


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(GeoattnError, match="not empty"):
        run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    with pytest.raises(GeoattnError, match="it is a file"):
        run_trials(store(tmp_path / "thesis.txt"), "small", CONFIGS, SQUARE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
