"""What a graph file would take in memory, from a first look at it: before networkx or SciPy believe what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.read_limit import allowance, check_need

__all__ = ["check_gml", "check_graphml", "check_nodes"]

_BLOCK = 1 << 20
_DEEPEST = 64  # levels of a GraphML file; nested graphs have a few
_ELEMENT = 900  # bytes of an element of XML, and of what networkx makes of it
_RECORD = 1200  # bytes of a node or an edge of a GML file, and of its tokens
_NODE = 100  # bytes that the solvers take for a node without edges
_ENTRY = 48  # bytes of an entry of a matrix while it is sorted


def check_nodes(path: Path, n: int, entries: int) -> None:
    """A matrix of n rows may have hardly an entry: rows are bounded on their own."""
    check_need(path, _NODE * n + _ENTRY * entries, f"a graph of {n:,} nodes")


def check_graphml(path: Path) -> None:
    """No document type (entities grow without end), no endless nesting, and not too many elements."""
    from xml.parsers import expat

    depth = elements = 0
    most = allowance(path) // _ELEMENT
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth, elements = depth + 1, elements + 1
        if depth > _DEEPEST:
            raise GeoattnError(f"{path} is nested more than {_DEEPEST} levels deep; it is no GraphML file.")
        if elements > most:
            check_need(path, elements * _ELEMENT, f"more than {most:,} elements")

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: Any) -> None:
        raise GeoattnError(f"{path} has a document type or entities of its own, which are not read; remove them.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    for block in _blocks(path):
        parser.Parse(block)
    parser.Parse(b"", True)


def check_gml(path: Path) -> None:
    """Records are counted by their brackets, values by the words of the file."""
    records = sum(block.count(b"[") for block in _blocks(path))
    check_need(path, _RECORD * records + 8 * path.stat().st_size, f"{records:,} nodes and edges")


def _blocks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(_BLOCK), b"")
