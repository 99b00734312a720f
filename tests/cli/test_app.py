"""Start-up, exit codes and the error boundary."""

from __future__ import annotations

import subprocess
import sys

import pytest

import geoattn

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "transformers", "sklearn", "pyarrow")


@pytest.mark.parametrize("arguments", [["--help"], ["curvature", "--help"], ["cite"], ["--version"]])
def test_help_does_not_import_what_it_does_not_need(arguments):
    code = (
        "import sys\n"
        f"sys.argv = ['geoattn', *{arguments!r}]\n"
        "from geoattn.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code in (0, None), end.code\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_curvature_of_a_numpy_file_needs_no_torch(tmp_path):
    code = (
        "import sys\nsys.argv = ['geoattn', 'curvature']\nfrom geoattn.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_the_script_and_the_module_are_the_same(process):
    done = process("--version")
    assert (done.returncode, done.stdout) == (0, f"geoattn {geoattn.__version__}\n")


def test_without_a_verb_there_is_help(run):
    result = run()
    assert "curvature" in result.output
    assert "error" not in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command"),
        (["curvature", "--nonsense"], "No such option"),
        (["curvature", "--threads", "many"], "--threads"),
        (["curvature", "a.npy", "b.npy"], "unexpected extra argument"),
        (["cite", "nonsense"], "no method 'nonsense' to cite: expected one of curvature"),
    ],
)
def test_bad_usage_is_one_line_and_code_2(run, arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("geoattn: error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


@pytest.mark.parametrize("arguments", [["curvature"], ["curvature", "--json"], ["cite"], ["--help"]])
def test_a_full_disk_behind_stdout_is_one_line(process, arguments):
    with open("/dev/full", "w") as full:
        done = process(*arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "geoattn: error: cannot write the output: No space left on device.\n"


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m geoattn curvature --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("{\n0\n", "")


def test_a_bug_keeps_its_traceback(run, monkeypatch):
    monkeypatch.setattr("geoattn.citations.cite", lambda *_: 1 / 0)
    assert isinstance(run("cite").exception, ZeroDivisionError)
