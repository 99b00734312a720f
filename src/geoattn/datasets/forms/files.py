"""Forms on the disk: .txt, .csv, .tsv, .jsonl and .parquet files. Nothing in a file is executed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.datasets.forms.form import Asked, Form, Samples
from geoattn.datasets.forms.tables import Table, table_samples
from geoattn.datasets.forms.texts import text_samples

__all__ = ["FILE", "READERS"]


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
    """One text a line; an empty line is an empty text."""
    text = path.read_bytes().decode("utf-8")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    return text_samples(lines, path.name, asked, source=str(path), split="lines")


def _separated(path: Path, asked: Asked) -> Samples:
    import pandas as pd

    mark = "\t" if path.suffix.lower() == ".tsv" else ","
    try:  # as it is written: a text "NA" is a text
        frame = pd.read_csv(path, sep=mark, dtype=str, keep_default_na=False, na_filter=False, encoding="utf-8")
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise GeoattnError(f"{path} is not a table: {' '.join(str(error).split())}.") from None
    return table_samples(_of_frame(frame, path), asked)


def _json_lines(path: Path, asked: Asked) -> Samples:
    columns: dict[str, list[Any]] = {}
    count = 0
    for number, line in enumerate(path.read_bytes().decode("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise GeoattnError(f"{path}, line {number}: expected a JSON object; got {line[:60]!r}.")
        for name in {*columns, *row}:
            columns.setdefault(name, [None] * count).append(row.get(name))
        count += 1
    table = Table(path.name, tuple(columns), count, lambda name: columns[name], source=str(path))
    return table_samples(table, asked)


def _parquet(path: Path, asked: Asked) -> Samples:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise GeoattnError(f"{path} is not a parquet file ({str(error).splitlines()[0]}).") from None
    with file:
        names = tuple(file.schema_arrow.names)
        table = Table(
            path.name, names, file.metadata.num_rows, lambda name: file.read([name]).column(name).to_pylist(),
            source=str(path),
        )  # fmt: skip
        return table_samples(table, asked)


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
