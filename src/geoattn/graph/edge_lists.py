"""Edge lists in text files: which lines are edges, which way they point, and which line is a header."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.read_limit import Budget, memory_of
from geoattn._core.text_files import lines_of

__all__ = ["read_edge_list"]

Line = tuple[str, list[str]]  # the place of a line, for errors, and its cells

_LONGEST_LINE = 1 << 20  # bytes
_EDGE, _NODE, _PAIR = 380, 320, 130  # bytes that networkx takes for an edge and a node, and a set for a pair of nodes
_HEADER = {"source", "target", "from", "to", "u", "v"}


def read_edge_list(path: Path, *, directed: bool = False) -> Any:
    r"""The graph. A line is two nodes and maybe a weight, with blanks or commas between them; # starts a comment.

    Directed: a line is an edge from its first node to its second. Undirected: a line is an edge, and so are two lines
    with both directions of a pair and the same weight.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.edgelist"
    >>> _ = path.write_text("a b 2\nb a 2\nb c 1\n")
    >>> read_edge_list(path).number_of_edges(), read_edge_list(path, directed=True).number_of_edges()
    (2, 3)
    """
    import networkx as nx

    graph = nx.DiGraph() if directed else nx.Graph()
    listed: set[tuple[str, str]] = set()
    budget, width = Budget(path, "its edges"), 0
    for place, cells in _edges(path):
        source, target, weight = cells[0], cells[1], _weight(place, cells)
        if len(cells) != (width := width or len(cells)):
            raise GeoattnError(
                f"{place}: {len(cells)} columns, {width} in the lines before. Is it complete? Give every line a"
                " weight, or none."
            )
        if (source, target) in listed:
            raise GeoattnError(f"{place}: edge {(source, target)} is there twice; merge the lines into one.")
        if not directed and (target, source) in listed and graph[source][target]["weight"] != weight:
            raise GeoattnError(
                f"{place}: edge {(source, target)} has weight {weight:g}, but {(target, source)} has"
                f" {graph[source][target]['weight']:g} in a line before. An undirected edge has one weight; give"
                " --direction directed to read each line as a directed edge."
            )
        budget.spend(_EDGE + _PAIR + sum(memory_of(node) + _NODE for node in (source, target) if node not in graph))
        listed.add((source, target))
        graph.add_edge(source, target, weight=weight)
    if graph.number_of_edges() == 0:
        raise GeoattnError(f"{path} holds no edge.")
    return graph


def _weight(place: str, cells: list[str]) -> float:
    try:
        return float(cells[2]) if len(cells) == 3 else 1.0
    except ValueError:
        raise GeoattnError(f"{place}: {cells[2]!r} is not a weight.") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lines(path: Path) -> Iterator[Line]:
    """The lines that hold something, checked to be two nodes and maybe a third cell."""
    for number, line in enumerate(lines_of(path, longest=_LONGEST_LINE), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        place = f"{path}, line {number}"
        cells = [c.strip() for c in next(csv.reader([text]))] if "," in text else text.split()
        if len(cells) > 3:
            raise GeoattnError(
                f"{place}: expected two nodes and maybe a weight; got {len(cells)} columns, {text[:60]!r}. Further"
                " columns are not read: remove them, and put the weight into the third."
            )
        if len(cells) < 2 or not all(cells):
            raise GeoattnError(f"{place}: expected two nodes and maybe a weight; got {text[:60]!r}. Is it complete?")
        yield place, cells


def _edges(path: Path) -> Iterator[Line]:
    """The lines without the header."""
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        return iter(())
    return lines if _is_header(path, *first) else chain([first], lines)


def _is_header(path: Path, place: str, cells: list[str]) -> bool:
    """Whether the first line names the columns; an error where it may as well be an edge.

    A line with a number for a weight is an edge. Names such as source, target are a header. Other names are nodes when
    one of them occurs in another line, or is a number. They are a header when the third is no number, or when all other
    nodes are numbers. What is left may be both: it is an edge, but not in a .csv or .tsv file, where it is an error.
    """
    if len(cells) == 3 and _is_number(cells[2]):
        return False
    usual = {cell.lower() for cell in cells[:2]} <= _HEADER
    again, numbers = _look_below(path, cells[:2])
    nodes = again or any(map(_is_number, cells[:2]))
    if len(cells) == 3:
        if nodes and not usual:
            raise GeoattnError(f"{place}: {cells[2]!r} is not a weight. If the line is a header, put # in front of it.")
        return True
    if usual != nodes:
        return usual
    if not usual and numbers:
        return True
    if not usual and path.suffix.lower() not in (".csv", ".tsv"):
        return False
    why = "its names are also nodes of other lines" if usual else "its names are in no other line"
    raise GeoattnError(
        f"{place}: {','.join(cells)!r} may be a header or an edge, because {why}. If it is a header, put # in front of"
        " it. If it is an edge, give every line a weight, such as 1."
    )


def _look_below(path: Path, names: list[str]) -> tuple[bool, bool]:
    """Whether a name of the first line is a node of another line, and whether all nodes of the others are numbers."""
    lines, numbers, others = _lines(path), True, False
    next(lines)
    for _, cells in lines:
        if cells[0] in names or cells[1] in names:
            return True, False
        others, numbers = True, numbers and _is_number(cells[0]) and _is_number(cells[1])
    return False, others and numbers
