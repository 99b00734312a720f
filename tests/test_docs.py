"""The documentation: every Python example runs as it stands, with public names; the API page lists all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """Each on its own, as a reader would copy it; one process per page saves the imports."""
    blocks = examples(page)
    code = "\n".join(f"exec(compile({block!r}, 'example {k}', 'exec'), {{}})" for k, block in enumerate(blocks))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_page_on_conventions_says_what_comes_out() -> None:
    code = next(block for block in examples(DOCS / "conventions.md") if "means" in block)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    rises = {}
    for line in done.stdout.splitlines():
        preset, before, _, after = line.split()
        rises[preset] = float(after) > float(before)
    assert rises == {"markov": False, "hop": False, "grc-0.6": False, "grc-0.5": True}


def test_every_page_is_in_the_navigation() -> None:
    """A page of one claim is reached from the ledger."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    ledger = (DOCS / "claims.md").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.relative_to(DOCS).as_posix()
        assert f": {name}\n" in navigation or (name.startswith("claims/") and f"({name})" in ledger), name


WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *sorted((ROOT / "examples").glob("*.py"))]


def code_of(page: Path) -> list[str]:
    """Blocks in Python or py, or all of a program."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"```py(?:thon)?\n(.*?)```", text, flags=re.S) if page.suffix == ".md" else [text]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_examples_write_names_as_attributes(page: Path) -> None:
    """``import geoattn as ga`` and ``ga.room.name``; only the classes of `geoattn.compat` replace a peer's import."""
    for code in code_of(page):
        imports = re.findall(r"^\s*(?:from|import)\s+geoattn\.\S+", code, flags=re.M)
        deep = [line for line in imports if line.split()[-1] != "geoattn.compat"]
        assert not deep, f"{page.name}: {deep}"


def test_docstrings_import_from_namespaces() -> None:
    """An example in any docstring of the package imports from the front door or from a namespace."""
    deep = re.compile(r"^\s*(?:>>>|\.\.\.)\s.*\b(?:from|import)\s+geoattn\.\w+\.\w.*$", flags=re.M)
    found = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "src").rglob("*.py")
        if (lines := deep.findall(path.read_text(encoding="utf-8")))
    }
    assert not found


def missing_names(text: str) -> list[str]:
    """Names after ``ga.`` or ``geoattn.`` that a user cannot type."""
    import geoattn as ga

    missing = []
    for name in sorted(set(re.findall(r"\b(?:ga|geoattn)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text))):
        place, found = "", ga
        for part in name.split("."):
            inside = f"{place}.{part}".strip(".")
            if isinstance(found, ModuleType) and part not in (*dir(ga), *getattr(found, "__all__", ())):
                missing.append(inside)
                break
            if not hasattr(found, part):
                missing.append(inside)
                break
            place, found = inside, getattr(found, part)
            if not isinstance(found, (ModuleType, type)):
                break  # a value: its attributes are those of its own class
    return missing


@pytest.mark.parametrize(
    "page", [page for page in WRITTEN if page.name != "CONTRIBUTING.md"], ids=lambda page: page.stem
)
def test_the_names_of_the_prose_exist(page: Path) -> None:
    assert not missing_names(page.read_text(encoding="utf-8"))


def test_a_name_that_is_not_public_is_found() -> None:
    text = "`ga.dynamics.experiments.experiments()`, `ga.simulat`, `ga.Convention.off`, `ga.simulate`"
    assert missing_names(text) == ["Convention.off", "dynamics.experiments", "simulat"]


def public_names() -> set[str]:
    """Names of the stubs, flat where they are flat, else with their namespace."""
    package = ROOT / "src" / "geoattn"
    exported = re.compile(r"^from \.[\w.]+ import (\w+) as \1$", flags=re.M)
    flat = set(exported.findall((package / "__init__.pyi").read_text(encoding="utf-8"))) - {"__version__"}
    names = {f"geoattn.{name}" for name in flat}
    for stub in package.glob("*/__init__.pyi"):
        inside = set(exported.findall(stub.read_text(encoding="utf-8"))) - flat
        names |= {f"geoattn.{stub.parent.name}.{name}" for name in inside}
    from geoattn import plots

    return names | {f"geoattn.plots.{name}" for name in plots.__all__}


def test_the_api_page_lists_every_public_name_once() -> None:
    listed = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(encoding="utf-8"), flags=re.M)
    assert len(listed) == len(set(listed))
    missing, unknown = sorted(public_names() - set(listed)), sorted(set(listed) - public_names())
    assert not missing, "add to docs/api.md:\n" + "\n".join(f"::: {name}" for name in missing)
    assert not unknown, f"docs/api.md lists names that are not public: {unknown}"
