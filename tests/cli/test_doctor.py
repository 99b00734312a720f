from __future__ import annotations

import json

import pytest

from geoattn.cli import doctor


def test_a_healthy_machine(run):
    result = run("doctor")
    assert result.exit_code == 0, result.stdout
    assert "FAIL" not in result.stdout
    assert result.stdout.rstrip().endswith("healthy")
    for word in ("Python", "numpy", "torch", "transformers", "kernel", "threads"):
        assert word in result.stdout


def test_json(run):
    result = run("doctor", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert answer["healthy"] is True
    assert answer["kernel"] in ("x86-64-v3", "baseline")
    assert len(answer["checks"]) == 1 + len(doctor._CHECKS)


@pytest.mark.parametrize("wrong", [lambda: (1.0, 1e-9), lambda: (float("nan"), 1e-9), lambda: 1 / 0])
def test_a_failed_check_is_code_1_and_the_others_still_run(run, monkeypatch, wrong):
    monkeypatch.setitem(doctor._CHECKS, "certificates", wrong)
    result = run("doctor")
    assert result.exit_code == 1
    assert result.stdout.count("FAIL") == 2  # the check, and the last line
    assert "FAIL  certificates" in result.stdout
    assert "pass  embedded sample" in result.stdout


def test_a_solver_that_is_off_is_noticed(run, monkeypatch):
    from geoattn.curvature import transport

    true = transport.solve_pairs

    def off(*args, **kwargs):
        solved = true(*args, **kwargs)
        solved.w1[...] *= 1 + 1e-9
        return solved

    monkeypatch.setattr(transport, "solve_pairs", off)
    assert "FAIL  hop curvature on complete graphs" in run("doctor").stdout


def test_a_missing_package_is_noticed(run, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "pyarrow" else "1.0")
    result = run("doctor")
    assert result.exit_code == 1
    assert "missing: pyarrow" in result.stdout
