"""The import graph: rooms have levels, imports go down, and no two modules import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "geoattn"

#: A room may import from rooms of lower levels only.
LEVELS = {
    "_version": -1, "_native": -1, "_core": 0,
    "attention": 1, "citations": 1, "datasets": 1, "graph": 1, "runs": 1, "statistics": 1,
    "curvature": 2, "models": 2,
    "dynamics": 3, "smoothness": 3, "spectral": 3,
    "compat": 4, "perturbations": 4, "training": 4,
    "profiles": 5,
    "report": 6,
    "plots": 7,
    "studies": 8,
    "cli": 9, "__main__": 10,
}  # fmt: skip

#: Methods of a result that open a higher room when they are called, for the user's convenience.
CONVENIENCE = {("profiles.result", "report.page"), ("_core.display", "report.inline")}


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix("__init__").removesuffix(".")] = path
    found.pop("")
    return found


def imports(path: Path, known: dict[str, Path], *, at_start: bool) -> Iterator[str]:
    """Modules of the package that a file imports; ``at_start``: only when it is imported itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    if at_start:
        nodes = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "geoattn":
            base = node.module.removeprefix("geoattn").removeprefix(".")
            for alias in node.names:
                full = f"{base}.{alias.name}".removeprefix(".")
                yield full if full in known or not base else base
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("geoattn.") for a in node.names if a.name.startswith("geoattn."))


def test_every_room_has_a_level() -> None:
    rooms = {name.split(".")[0] for name in modules()}
    assert rooms <= set(LEVELS), f"give a level to {sorted(rooms - set(LEVELS))}"


def test_imports_go_down() -> None:
    known, wrong = modules(), []
    for name, path in known.items():
        room = name.split(".")[0]
        for target in imports(path, known, at_start=False):
            other = target.split(".")[0]
            if other != room and LEVELS[other] >= LEVELS[room] and (name, target) not in CONVENIENCE:
                wrong.append(f"{name} imports {target}")
    assert not wrong, "\n".join(sorted(wrong))


def test_no_cycle() -> None:
    known = modules()
    graph = {name: set(imports(path, known, at_start=True)) & set(known) - {name} for name, path in known.items()}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"modules import each other: {' -> '.join((*way[way.index(name) :], name))}"
        if name not in done:
            for other in graph[name]:
                visit(other, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_files_are_short() -> None:
    """A file above 350 lines holds more than one concept."""
    project = ROOT.parents[1]
    long = []
    for folder in ("src", "native", "tests"):
        for path in (project / folder).rglob("*"):
            if path.suffix in (".py", ".pyi", ".hpp", ".cpp", ".js", ".css", ".j2"):
                lines = len(path.read_text(encoding="utf-8").splitlines())
                if lines > 350:
                    long.append(str(path.relative_to(project)))
    assert not long, f"divide these files by concept: {long}"
