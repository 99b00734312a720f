"""Disks that are full, folders that cannot be written: a clear sentence, and nothing lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from geoattn._core.errors import GeoattnError
from geoattn.runs.drive import run_trials
from tests.runs.test_store import CONFIGS, SQUARE, contents, store


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk(small_disk: Path, workers: int) -> None:
    run_trials(store(small_disk / "s"), "small", CONFIGS[:2], SQUARE)
    before = contents(small_disk / "s")
    with open(small_disk / "ballast", "wb") as file:
        for block in (4096, 1):
            try:
                while True:
                    os.write(file.fileno(), b"x" * block)
            except OSError:
                pass
    with pytest.raises(GeoattnError, match=r"cannot write .*: No space left on device"):
        run_trials(store(small_disk / "s"), "small", CONFIGS, SQUARE, workers=workers)
    assert contents(small_disk / "s") == before
    (small_disk / "ballast").unlink()
    run_trials(store(small_disk / "s"), "small", CONFIGS, SQUARE, workers=workers)
    after = contents(small_disk / "s")
    assert len(after) == 6
    assert {name: after[name] for name in before} == before


def test_a_disk_that_fills_while_a_result_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path).plan("small", CONFIGS)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GeoattnError, match=r"No space left on device\. Nothing was left behind"):
        run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    monkeypatch.undo()
    assert list((tmp_path / "results").iterdir()) == []
    assert store(tmp_path).status(CONFIGS).failed == 0  # the trial is not to blame
    assert len(run_trials(store(tmp_path), "small", CONFIGS, SQUARE)) == 6


def test_a_read_only_disk(small_disk: Path) -> None:
    run_trials(store(small_disk / "s"), "small", CONFIGS[:2], SQUARE)
    before = contents(small_disk / "s")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(GeoattnError, match=r"cannot write .*Read-only file system"):
        run_trials(store(small_disk / "s"), "small", CONFIGS, SQUARE)
    assert contents(small_disk / "s") == before
    # what is done can be read
    assert store(small_disk / "s").status(CONFIGS).done == 2
    assert run_trials(store(small_disk / "s"), "small", CONFIGS[:2], SQUARE) == [{"square": 0}, {"square": 1}]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(GeoattnError, match=r"cannot write .*Permission denied"):
            run_trials(store(tmp_path / "s"), "small", CONFIGS, SQUARE)
    finally:
        tmp_path.chmod(0o700)
