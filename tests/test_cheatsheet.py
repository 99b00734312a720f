"""The cheat sheet: each call that it shows exists and takes the arguments that it is shown with."""

from __future__ import annotations

import ast
import inspect
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import geoattn as ga

PAGE = Path(__file__).parents[1] / "docs" / "cheatsheet.md"
OBJECTS = {"profile": ga.profiles.Profile, "record": ga.attention.Record, "result": ga.curvature.Curvature}


def calls() -> list[str]:
    """The spans of code with a call of ``ga`` or of a method of a result."""
    spans = re.findall(r"`([^`\n]+)`", PAGE.read_text(encoding="utf-8"))
    return [span for span in spans if re.search(r"\b(?:ga|profile|record|result)\.[\w.]+\(", span)]


def called(node: ast.Call) -> tuple[Any, int] | None:
    """What a call calls, and the number of arguments that come before those shown; None for a method of a value."""
    names = []
    at = node.func
    while isinstance(at, ast.Attribute):
        names, at = [at.attr, *names], at.value
    if not isinstance(at, ast.Name):
        return None
    known = ga if at.id == "ga" else OBJECTS.get(at.id)
    return None if known is None else (reduce(getattr, names, known), 0 if known is ga else 1)


def fault(span: str) -> str | None:
    """Why a span does not work, or None."""
    for node in ast.walk(ast.parse(span.replace("record: model(", "record:\n    model("))):
        if isinstance(node, ast.Call) and (found := called(node)) is not None:
            function, before = found
            words = {word.arg: None for word in node.keywords if word.arg}
            try:
                inspect.signature(function).bind(*[None] * (before + len(node.args)), **words)
            except TypeError as error:
                return f"{span}: {error}"
    return None


def test_there_are_calls() -> None:
    assert len(calls()) > 20


@pytest.mark.parametrize("span", calls())
def test_a_call_takes_its_arguments(span: str) -> None:
    assert fault(span) is None


def test_a_call_without_an_argument_it_needs_is_found() -> None:
    assert fault("ga.robustness(model, data, ga.perturbations.text_perturbations())")


def test_the_heads_come_with_the_deepest_first() -> None:
    assert 'sort_values("negative_depth", ascending=False)' in PAGE.read_text(encoding="utf-8")


def row(start: str) -> str:
    return next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {start}"))


def test_what_can_be_kept_is_named_and_nothing_else() -> None:
    """A result of a graph has no view, and few results are written to a file."""
    public = [getattr(space, name) for space in (ga.curvature, ga.dynamics, ga.profiles) for name in dir(space)]
    kept = {
        kind.__name__ for kind in public if isinstance(kind, type) and hasattr(kind, "save") and hasattr(kind, "load")
    }
    assert set(re.findall(r"`([A-Z]\w+)`", row("keep a result"))) == kept
    assert not hasattr(ga.curvature.EdgeCurvature, "view")
    assert "of the curvature of maps `result.view()`" in row("look at it")
    for kind in (ga.curvature.EdgeCurvature, ga.curvature.EdgeFlow, ga.curvature.EdgeForman):
        assert hasattr(kind, "to_pandas")
        assert hasattr(kind, "annotate")
