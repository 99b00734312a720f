"""Ctrl-C: within a second, one line, code 130, nothing half-written. And the progress bar."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest


def large_map(path, attention, n: int) -> None:
    np.save(path, attention(n, n))


def interrupted(command, wait: float, **extra):
    """Start, wait, press Ctrl-C: (code, stdout, stderr, seconds from the signal to the end)."""
    # A shell starts jobs in the background with SIGINT ignored, which a child would inherit.
    extra["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **extra)
    try:
        time.sleep(wait)
        assert child.poll() is None, "ended before the signal"
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = child.communicate(timeout=60)
        return child.returncode, out, err, time.monotonic() - start
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("n", "options"),
    [(400, []), (400, ["--convention", "grc-0.6", "--threads", "1"]), (3000, ["--edges", "1000"])],
    ids=["many edges", "one thread", "one long step"],
)
def test_ctrl_c(attention, tmp_path, n, options):
    large_map(tmp_path / "a.npy", attention, n)
    command = [
        sys.executable,
        "-m",
        "geoattn",
        "curvature",
        str(tmp_path / "a.npy"),
        *options,
        "--out",
        str(tmp_path / "out"),
    ]
    code, out, err, seconds = interrupted(command, 3.0)
    assert (code, out, err) == (130, "", "geoattn: interrupted\n")
    assert seconds < 1.5
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_ctrl_c_in_json_mode_leaves_stdout_empty(attention, tmp_path):
    large_map(tmp_path / "a.npy", attention, 400)
    command = [sys.executable, "-m", "geoattn", "curvature", str(tmp_path / "a.npy"), "--json"]
    assert interrupted(command, 3.0)[:2] == (130, "")


def on_terminal(command, until: float) -> str:
    """What a terminal sees on stderr until the time is up or the command ends."""
    main, side = pty.openpty()
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=side, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    )
    os.close(side)
    seen, end = b"", time.monotonic() + until
    try:
        while time.monotonic() < end and child.poll() is None:
            if select.select([main], [], [], 0.1)[0]:
                seen += os.read(main, 65536)
    except OSError:  # the child closed its side
        pass
    finally:
        child.kill()
        child.wait()
        os.close(main)
    return seen.decode()


def test_long_work_shows_progress_on_a_terminal_and_short_work_does_not(attention, tmp_path):
    large_map(tmp_path / "a.npy", attention, 400)
    command = [sys.executable, "-m", "geoattn", "curvature"]
    long = on_terminal([*command, str(tmp_path / "a.npy")], 5.0)
    assert "curvature" in long
    assert "/79800" in long
    assert "left" in long
    assert on_terminal(command, 20.0) == ""


def test_progress_counts_over_layers(run, monkeypatch):
    from geoattn.cli.progress import LateProgress

    seen = []
    monkeypatch.setattr(LateProgress, "update", lambda self, done: seen.append(done))
    assert run("curvature").exit_code == 0
    assert seen == sorted(seen)
    assert seen[-1] == 4 * 6 * 4 * 136


def test_ctrl_c_while_a_string_is_executed(tmp_path):
    """As dataclasses do, when a module is imported: Python would end `-m` by the signal, though it was caught."""
    (tmp_path / "untimely.py").write_text(
        "import sys\n"
        "from geoattn.cli import app\n"
        "def run():\n"
        "    try:\n"
        "        exec('raise KeyboardInterrupt')\n"
        "    except KeyboardInterrupt:\n"
        "        raise app._InterruptedError from None\n"
        "sys.exit(app._guarded(run))\n"
    )
    ended = subprocess.run([sys.executable, "-m", "untimely"], cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "geoattn: interrupted\n")
