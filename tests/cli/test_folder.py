"""--out: whole or not at all."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.cli.folder import write_folder


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def no_space(name: str):
    """An `open` whose file of this name is on a full disk."""

    class Full:
        def __init__(self, file):
            self._file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._file.close()

        def write(self, content):
            self._file.write(content[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real = builtins.open
    return lambda path, mode="r", *rest, **more: (
        Full(real(path, mode)) if Path(path).name == name and "w" in mode else real(path, mode, *rest, **more)
    )


@pytest.mark.parametrize("name", ["curvature.parquet", "histogram-01-1.png"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_full_disk_leaves_nothing(run, attention, tmp_path, monkeypatch, name, existing):
    np.save(tmp_path / "two.npy", attention(2, 1, 1, 5, 5))
    out = tmp_path / "a" / "b"
    if existing:
        out.mkdir(parents=True)
        (out / "curvature.parquet").write_text("of an earlier run")
    before = everything(tmp_path)
    monkeypatch.setattr(builtins, "open", no_space(name))
    result = run("curvature", tmp_path / "two.npy", "--out", out)
    monkeypatch.undo()
    assert (result.exit_code, result.stdout) == (2, "")
    expected = f"geoattn: error: cannot write to {out}: No space left on device. Nothing was left behind.\n"
    assert result.stderr == expected
    assert everything(tmp_path) == before
    if existing:
        assert (out / "curvature.parquet").read_text() == "of an earlier run"


def test_a_disk_that_is_really_full(process, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        done = process("curvature", "--out", disk / "out")
        assert done.returncode == 2
        assert "No space left on device" in done.stderr
        assert done.stderr.count("\n") == 1
        assert everything(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_writing_leaves_nothing(tmp_path, monkeypatch, signal):
    def interrupt(*_):
        raise signal

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(signal):
        write_folder(tmp_path / "out", {"a": b"1", "b": b"2"})
    assert everything(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_found_before_the_work(run, tmp_path, monkeypatch):
    monkeypatch.setattr("geoattn.profiles.map_layers.solve_layers", lambda *_, **__: pytest.fail("worked in vain"))
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "out", "/dev/null", "/dev/null/out"):
        result = run("curvature", "--out", out)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1
        assert "--out must be a folder" in result.stderr or "cannot write to" in result.stderr


def test_a_second_run_replaces_the_first(run, attention, tmp_path):
    np.save(tmp_path / "one.npy", attention(5, 5))
    tables = []
    for convention in ("markov", "hop"):
        command = ["curvature", tmp_path / "one.npy", "--out", tmp_path / "out", "--convention", convention]
        assert run(*command).exit_code == 0
        tables.append((tmp_path / "out" / "curvature.parquet").read_bytes())
    assert everything(tmp_path / "out") == ["curvature.parquet", "histogram-00-0.png"]
    assert tables[0] != tables[1]


def test_a_name_too_long_for_the_disk(tmp_path):
    with pytest.raises(GeoattnError, match="cannot write to"):
        write_folder(tmp_path / ("x" * 300), {"a": b""})
