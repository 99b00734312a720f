"""What ``geoattn curvature`` says: a table for people, a dictionary for machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from geoattn._version import __version__
from geoattn.cli.printable import printable
from geoattn.curvature.transport import Status
from geoattn.graph.convention import Convention

if TYPE_CHECKING:
    from geoattn.profiles.map_layers import LayerCurvature

__all__ = ["as_json", "print_table"]

_MOST_ROWS = 48  # with more heads than this in all, the table has a row per layer only
_WIDTH_IN_A_FILE = 110  # columns when stdout is not a terminal


def as_json(
    solved: Sequence[LayerCurvature], convention: Convention, source: str, seconds: float, out: str | None
) -> dict[str, Any]:
    """Everything, with null for what has no value."""
    settings = dict(solved[0].settings) if solved else {}
    layers = [{"name": layer.name, **layer.summary, "heads": layer.heads} for layer in solved]
    return _without_nan(
        {
            "geoattn": __version__,
            "source": source,
            "convention": convention.as_dict(),
            "settings": settings,
            "seconds": round(seconds, 3),
            "out": out,
            "layers": layers,
        }
    )


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    solved: Sequence[LayerCurvature], convention: Convention, title: str, seconds: float, written: str | None
) -> None:
    """The table, the convention in words, the time, and warnings."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    in_a_file = not console.is_terminal
    if in_a_file:
        console.width = max(console.width, _WIDTH_IN_A_FILE)

    def say(line: Text | str) -> None:
        console.print(line, soft_wrap=in_a_file)  # a file gets whole lines

    by_head = max(len(layer.heads) for layer in solved) > 1 and sum(len(layer.heads) for layer in solved) <= _MOST_ROWS
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("layer")
    if by_head:
        table.add_column("head", justify="right")
    for column in ("mean", "min", "max", "negative", "distance to 1", "edges", "max gap"):
        table.add_column(column, justify="right", no_wrap=True)
    for layer in solved:
        head = ["all"] if by_head else []
        table.add_row(Text(printable(layer.name)), *head, *_cells(layer.summary), style="bold" if by_head else "")
        for k, summary in enumerate(layer.heads if by_head else []):
            last = k == len(layer.heads) - 1
            table.add_row("", str(k), *_cells(summary), end_section=last)
    say(Text(printable(title), style="bold"))
    console.print(table)
    say(Text.assemble(("convention ", "bold"), (convention.name, "bold cyan"), f": {convention.in_words()}"))
    threads = solved[0].settings["threads"]
    say(f"{_certificate(solved)} {seconds:.2f} s on {threads} thread{'s' if threads > 1 else ''}.")
    for line in _missing(solved):
        say(Text(line))
    for line in _degenerate(solved):
        say(Text(line, style="bold yellow"))
    if written:
        say(Text(printable(written)))


def _cells(summary: dict[str, Any]) -> list[str]:
    def number(name: str) -> str:
        return "-" if math.isnan(summary[name]) else f"{summary[name]:.4f}"

    values, edges = summary["values"], summary.get("edges", 0)
    share = summary["negative_share"]
    return [
        number("mean"), number("min"), number("max"),
        "-" if math.isnan(share) else f"{share:.1%}",
        number("distance_to_one"),
        f"{values:,} of {edges:,}" if edges > values else f"{values:,}",
        f"{summary['max_gap']:.0e}",
    ]  # fmt: skip


def _certificate(solved: Sequence[LayerCurvature]) -> str:
    """How many values are exact, and how near the others are."""
    count, bounded = (sum(layer.summary[name] for layer in solved) for name in ("values", "bounded"))
    gap, tolerance = max(layer.summary["max_gap"] for layer in solved), solved[0].settings["tolerance"]
    if bounded == 0:
        return f"{count:,} values, exact: largest relative duality gap {gap:.1e}."
    near = f"within ±{tolerance / 2:g} (--tolerance {tolerance:g})" if tolerance else f"with gaps of up to {gap:.1e}"
    return f"{count:,} values: {count - bounded:,} exact, {bounded:,} {near}."


def _degenerate(solved: Sequence[LayerCurvature]) -> list[str]:
    """Why the first degenerate layer is so, and which others are."""
    layers = [layer for layer in solved if layer.summary["degenerate"]]
    lines = [f"warning: layer {printable(layer.name)}: {layer.summary['degenerate']}." for layer in layers[:1]]
    if len(layers) > 1:
        names = ", ".join(printable(layer.name) for layer in layers[1:])
        lines.append(f"warning: degenerate too: layer{'s' if len(layers) > 2 else ''} {names}.")
    return lines


def _missing(solved: Sequence[LayerCurvature]) -> list[str]:
    """How many edges have no value of their own, and why."""
    counts: dict[str, int] = {}
    for layer in solved:
        for status, count in layer.summary["status"].items():
            counts[status] = counts.get(status, 0) + count
    counts.pop(Status.SOLVED.name.lower(), None)
    return [f"{k:,} edge{'s' if k > 1 else ''}: {Status[status.upper()]}." for status, k in counts.items()]
