"""Driving a study to its end: one bad trial never stops the rest, and the number of workers never shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geoattn._core.errors import GeoattnError
from geoattn.runs.drive import run_trials
from tests.runs.test_store import CONFIGS, SQUARE, contents, store


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"bad": True}, "ValueError: no square"),
        ({"leave": True}, "SystemExit: 3"),
        ({"nothing": True}, "must return something"),
    ],
)
def test_a_failed_trial_is_told_when_the_others_are_done(tmp_path: Path, fault: dict[str, Any], why: str) -> None:
    configs = [{"x": 1}, {"x": 2, **fault}, {"x": 3}]
    with pytest.raises(GeoattnError, match=rf"1 of 3 trials failed, the others are done: .*{why}.*--retry"):
        run_trials(store(tmp_path), "small", configs, SQUARE)
    status = store(tmp_path).status(configs)
    assert (status.done, status.failed, status.waiting) == (2, 1, 0)
    assert why in store(tmp_path).failures(configs)[0][1]


def test_failed_trials_are_tried_again_on_request_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOATTN_TEST_CURE", str(tmp_path / "cure"))
    configs = [{"x": 1}, {"x": 2, "bad": True}]
    for _ in range(2):
        with pytest.raises(GeoattnError, match="not yet"):
            run_trials(store(tmp_path / "s"), "small", configs, "tests.runs.trials:mended")
        (tmp_path / "cure").write_text("")  # from now on it would work, but nobody asked
    results = run_trials(store(tmp_path / "s"), "small", configs, "tests.runs.trials:mended", retry=True)
    assert results == [{"square": 1}, {"square": 4}]
    assert list((tmp_path / "s" / "failures").iterdir()) == []


def test_a_trial_that_kills_its_process_does_not_stop_the_rest(tmp_path: Path) -> None:
    configs = [{"x": 0, "crash": True}, *CONFIGS[1:]]
    with pytest.raises(GeoattnError, match=r"1 of 6 trials failed, .*its process died \d+ times"):
        run_trials(store(tmp_path), "small", configs, SQUARE, workers=2)
    assert store(tmp_path).status(configs).done == 5


def test_a_trial_at_which_processes_died_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOATTN_TEST_LOG", str(tmp_path / "log"))
    (tmp_path / "s" / "claims").mkdir(parents=True)
    (tmp_path / "s" / "claims" / f"{store(tmp_path).key({'x': 0})}.lock").write_text("1")
    run_trials(store(tmp_path / "s"), "small", CONFIGS, SQUARE)
    begun = [line for line in (tmp_path / "log").read_text().splitlines() if "begin" in line]
    assert begun == [f"begin {x}" for x in (1, 2, 3, 4, 5, 0)]


def test_workers_give_the_same_bits_as_one_process(tmp_path: Path) -> None:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        here = run_trials(store(tmp_path / "one"), "small", CONFIGS[:2], "tests.runs.trials:dot")
        assert torch.get_num_threads() == 2  # put back
    finally:
        torch.set_num_threads(threads)
    run_trials(store(tmp_path / "two"), "small", CONFIGS[:2], "tests.runs.trials:dot", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert [result["threads"] for result in here] == [1, 1]


def test_progress_counts_up_to_the_end(tmp_path: Path) -> None:
    seen: list[int] = []
    run_trials(store(tmp_path), "small", CONFIGS, SQUARE, progress=lambda s: seen.append(s.finished))
    assert seen == [0, 1, 2, 3, 4, 5, 6]
