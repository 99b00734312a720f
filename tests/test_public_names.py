"""Public names: a short front door, a docstring with an example for each, modules that import by their own names."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import geoattn as ga

MOST_FLAT_NAMES = 60
NAMESPACES = sorted(name for name in dir(ga) if isinstance(getattr(ga, name), types.ModuleType))
FLAT = sorted(name for name in dir(ga) if not name.startswith("_") and name not in NAMESPACES)


def public_objects() -> Iterator[tuple[str, Any]]:
    """(place, object) of all public functions and classes, each by its shortest place first."""
    for name in FLAT:
        yield name, getattr(ga, name)
    for namespace in NAMESPACES:
        module = getattr(ga, namespace)
        for name in module.__all__:
            yield f"{namespace}.{name}", getattr(module, name)


OBJECTS: dict[str, Any] = {}
for _place, _one in public_objects():
    if (inspect.isroutine(_one) or inspect.isclass(_one)) and not any(_one is known for known in OBJECTS.values()):
        OBJECTS[_place] = _one


def example_of(one: Any) -> list[doctest.Example]:
    """The lines of an example that pytest runs: none when one of them is skipped."""
    lines = doctest.DocTestParser().get_examples(inspect.getdoc(one) or "")
    return [] if any(doctest.SKIP in line.options for line in lines) else lines


def test_the_front_door_is_short() -> None:
    assert len(FLAT) + len(NAMESPACES) <= MOST_FLAT_NAMES
    assert sorted(set(ga.__all__) - {"__version__"}) == sorted(FLAT + NAMESPACES)


@pytest.mark.parametrize("place", OBJECTS)
def test_every_public_name_has_a_docstring_with_an_example(place: str) -> None:
    one = OBJECTS[place]
    assert one.__doc__, f"geoattn.{place} has no docstring"
    assert example_of(one), f"geoattn.{place} has no example that runs"


@pytest.mark.parametrize("place", OBJECTS)
def test_an_example_can_be_pasted_into_a_session(place: str) -> None:
    """It imports what it uses, from the front door or a namespace."""
    wrong = what_is_missing(inspect.getdoc(OBJECTS[place]) or "")
    assert not wrong, f"the example of geoattn.{place} {wrong}"


def what_is_missing(doc: str) -> str:
    """What is wrong with the imports of an example, in words; empty when nothing is."""
    tree = ast.parse("".join(example.source for example in doctest.DocTestParser().get_examples(doc)))
    known, used, modules = set(dir(builtins)), set(), []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules += [alias.name for alias in names]
                known |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                modules.append(module)
                known |= {alias.asname or alias.name for alias in names}
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name) | ast.Name(id=name):
                known.add(name)
            case ast.ExceptHandler(name=str(name)):
                known.add(name)
    doors = {"geoattn", *(f"geoattn.{name}" for name in NAMESPACES)}
    if deep := [m for m in modules if m.partition(".")[0] == "geoattn" and m not in doors]:
        return f"imports {', '.join(deep)}, which is no namespace"
    return f"does not import {', '.join(sorted(used - known))}" if used - known else ""


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_no_public_name_is_a_function_and_a_module(namespace: str) -> None:
    module = importlib.import_module(f"geoattn.{namespace}")
    inside = {found.name for found in pkgutil.iter_modules(getattr(module, "__path__", []))}
    assert not inside & set(module.__all__)
    assert module is getattr(ga, namespace)
    assert module.__doc__, f"geoattn.{namespace} does not say what it holds"


def test_no_flat_name_is_a_module() -> None:
    inside = {found.name for found in pkgutil.iter_modules(ga.__path__)}
    assert not inside & set(FLAT)
    assert set(NAMESPACES) <= inside


def test_every_module_imports_by_its_own_name() -> None:
    """``import a.b.c as x`` looks up c in a.b, so that a function of that name would hide the module."""
    modules = sorted(found.name for found in pkgutil.walk_packages(ga.__path__, "geoattn."))
    modules = [name for name in modules if not name.endswith("__main__")]
    assert len(modules) > 150
    lines = ["import sys, types", *(f"import {name} as m{i}" for i, name in enumerate(modules))]
    lines += [f"assert m{i} is sys.modules['{name}'], '{name}'" for i, name in enumerate(modules)]
    lines += [f"assert isinstance(m{i}, types.ModuleType), '{name}'" for i, name in enumerate(modules)]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


MOVED = [(namespace, name) for namespace, names in ga._MOVED.items() for name in names.split()]


@pytest.mark.parametrize(("namespace", "name"), MOVED)
def test_an_old_flat_name_says_its_new_place(namespace: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"geoattn\.{name} is now geoattn\.{namespace}\.{name};"):
        old = getattr(ga, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert old is getattr(getattr(ga, namespace), name)
    assert name not in dir(ga)


def test_the_warning_points_at_the_line_of_the_user() -> None:
    script = "import geoattn\n\ngeoattn.bimodality"
    done = subprocess.run([sys.executable, "-W", "default", "-c", script], capture_output=True, text=True)
    assert "<string>:3: DeprecationWarning: geoattn.bimodality is now" in done.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        ga.nonsense  # noqa: B018
