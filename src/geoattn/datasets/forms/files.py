"""Forms on the disk: .txt, .csv, .tsv, .jsonl and .parquet files. Nothing in a file is executed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.parquet_files import open_parquet, read_columns
from geoattn._core.read_limit import Budget, check_need, memory_of
from geoattn._core.text_files import lines_of, parse_json
from geoattn.datasets.forms.form import Asked, Form, Samples
from geoattn.datasets.forms.tables import Table, table_samples
from geoattn.datasets.forms.texts import text_samples

__all__ = ["FILE", "READERS"]

_WIDEST = 1 << 20  # bytes of a first line
_CELL, _COLUMN = 32, 2000  # bytes that pandas takes for an empty one


def is_file(given: Any) -> bool:
    """A path, or a string that ends like the name of such a file."""
    if isinstance(given, Path):
        return True
    return isinstance(given, str) and "\n" not in given and Path(given).suffix.lower() in READERS


def read_file(given: Any, asked: Asked) -> Samples:
    """By the ending of its name."""
    path = Path(given)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise GeoattnError(f"{path}: expected a folder of images or a file that ends in {', '.join(READERS)}.")
    if not path.is_file():
        raise GeoattnError(f"cannot read {path}: no such file.")
    try:
        return reader(path, asked)
    except UnicodeDecodeError as error:
        raise GeoattnError(f"{path} is not UTF-8 text (byte {error.start}).") from None
    except OSError as error:
        raise GeoattnError(f"cannot read {path}: {error.strerror or str(error).splitlines()[0]}.") from None


def _lines(path: Path, asked: Asked) -> Samples:
    """One text a line; blank lines are left out."""
    budget, lines = Budget(path, "its lines"), []
    for line in lines_of(path):
        if line.strip():
            budget.spend(memory_of(line))
            lines.append(line)
    return text_samples(lines, path.name, asked, source=str(path), split="lines")


def _separated(path: Path, asked: Asked) -> Samples:
    import pandas as pd

    mark = "\t" if path.suffix.lower() == ".tsv" else ","
    _check_cells(path, mark)
    try:  # as it is written: a text "NA" is a text
        frame = pd.read_csv(path, sep=mark, dtype=str, keep_default_na=False, na_filter=False, encoding="utf-8")
    except UnicodeDecodeError:
        raise
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, OverflowError) as error:
        raise GeoattnError(f"{path} is not a table: {' '.join(str(error).split())}.") from None
    return table_samples(_of_frame(frame, path), asked)


def _json_lines(path: Path, asked: Asked) -> Samples:
    columns: dict[str, list[Any]] = {}
    budget, count = Budget(path, "its rows"), 0
    for number, line in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise GeoattnError(f"{path}, line {number}: expected a JSON object; got {line[:60]!r}.")
        budget.spend(memory_of(row) + 8 * len(columns) + 8 * count * len(row.keys() - columns.keys()))
        for name in {*columns, *row}:
            columns.setdefault(name, [None] * count).append(row.get(name))
        count += 1
    table = Table(path.name, tuple(columns), count, lambda name: columns[name], source=str(path))
    return table_samples(table, asked)


def _parquet(path: Path, asked: Asked) -> Samples:
    with open_parquet(path, path) as file:
        names = tuple(file.schema_arrow.names)
        table = Table(
            path.name, names, file.metadata.num_rows, lambda name: _values(file, path, name),
            source=str(path),
        )  # fmt: skip
        return table_samples(table, asked)


def _values(file: Any, path: Path, name: str) -> list[Any]:
    try:
        return read_columns(file, path, [name]).column(name).to_pylist()
    except GeoattnError:
        raise
    except (ValueError, OverflowError) as error:  # a text that is no UTF-8, a date out of range
        raise GeoattnError(f"{path}: column {name!r} cannot be read ({str(error).splitlines()[0]}).") from None


def _check_cells(path: Path, mark: str) -> None:
    """A short line counts as many cells as the first one has."""
    with open(path, "rb") as file:
        width = file.readline(_WIDEST).count(mark.encode()) + 1
        file.seek(0)
        rows = sum(block.count(b"\n") + block.count(b"\r") for block in iter(lambda: file.read(_WIDEST), b"")) + 1
    check_need(path, rows * width * _CELL + (width * _COLUMN), f"a table of {rows:,} x {width:,} cells")


def _of_frame(frame: Any, path: Path) -> Table:
    names = tuple(map(str, frame.columns))
    return Table(path.name, names, len(frame), lambda name: frame[name].tolist(), source=str(path))


#: Readers by the ending of the name.
READERS: dict[str, Callable[[Path, Asked], Samples]] = {
    ".txt": _lines, ".csv": _separated, ".tsv": _separated, ".jsonl": _json_lines, ".parquet": _parquet,
}  # fmt: skip
FILE = Form(
    "a .txt, .csv, .jsonl or .parquet file",
    '"reviews.csv", column="text"',
    frozenset({"file", "path", "text", "str", "table"}),
    is_file,
    read_file,
)
