"""Columns of parquet files, in pieces that are small enough, up to what the file may take.

A dictionary lets a column of gigabytes fit into a few kilobytes, and no field of the header says so. The pieces are
therefore so small that each would fit if all of its values were as long as the whole column is on the disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from geoattn._core.errors import GeoattnError
from geoattn._core.read_limit import Budget, allowance, check_need
from geoattn._core.visible import visible

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["open_parquet", "read_columns"]

_SHARE = 4  # a quarter of the allowance: Python's own objects take the rest
_PIECES = 8  # a piece is an eighth of that at most
_MOST_ROWS = 65_536
_MOST_COLUMNS = 10_000


def open_parquet(source: Any, where: Any) -> Any:
    """The open file; an error of one line when it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise GeoattnError(f"{where} is not a complete parquet file ({_first_line(error)}).") from None
    if file.metadata.num_columns > _MOST_COLUMNS:
        file.close()
        raise GeoattnError(f"{where} has {file.metadata.num_columns:,} columns; at most {_MOST_COLUMNS:,} are read.")
    return file


def read_columns(file: Any, where: Any, names: Sequence[str] | None = None) -> pa.Table:
    """Columns of an open file, all by default; an error of one line when they are damaged or too large."""
    import pyarrow as pa

    names = list(file.schema_arrow.names) if names is None else list(names)
    most = allowance(where) // _SHARE
    try:
        rows = min(_MOST_ROWS, max(1, most // _PIECES // max(1, _largest(file, names, where, most))))
        budget = Budget(where, f"column {', '.join(map(visible, names[:5]))}", most=most)
        batches = []
        for batch in file.iter_batches(rows, columns=names, use_threads=False):
            budget.spend(batch.nbytes)
            batches.append(batch)
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else _schema(file, names))
    except (pa.ArrowException, MemoryError, OSError, ValueError, OverflowError) as error:
        if isinstance(error, GeoattnError):
            raise
        raise GeoattnError(
            f"{where}, column {', '.join(map(visible, names[:5]))}: cannot be read ({_first_line(error)})."
        ) from None


def _largest(file: Any, names: Sequence[str], where: Any, most: int) -> int:
    """The bytes of the largest value that a row of these columns can hold, by the header.

    The header of a single column is not asked for here: pyarrow ends the process when that one is damaged.
    """
    leaves = [file.schema.column(k) for k in range(file.metadata.num_columns)]
    leaves = [leaf for leaf in leaves if leaf.path.split(".")[0] in names]
    texts = [leaf for leaf in leaves if leaf.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")]
    for leaf in texts:
        if leaf.max_repetition_level:
            raise GeoattnError(f"{where}: lists of texts ({visible(leaf.path)}) are not read.")
    lists = sum(leaf.max_repetition_level > 0 for leaf in leaves)
    numbers = file.metadata.num_rows * (len(leaves) - len(texts) - lists)
    if lists:
        numbers += _values_in_lists(where, names)
    check_need(where, 8 * numbers, "its numbers", most=most)
    if not texts:
        return 0
    groups = range(file.metadata.num_row_groups)
    return max((file.metadata.row_group(group).total_byte_size for group in groups), default=0)


_COUNT = """
import json, sys
import pyarrow.parquet as pq
about, names = pq.ParquetFile(sys.argv[1]).metadata, json.loads(sys.argv[2])
columns = [about.row_group(g).column(k) for g in range(about.num_row_groups) for k in range(about.num_columns)]
print(sum(column.num_values for column in columns if column.path_in_schema.split(".")[0] in names))
"""


def _values_in_lists(where: Any, names: Sequence[str]) -> int:
    """How many numbers lists hold, asked in a process of its own: the header of a damaged column ends it."""
    command = [sys.executable, "-c", _COUNT, os.fspath(where), json.dumps(list(names))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not done.stdout.strip().isdigit():
        raise GeoattnError(f"{where}, column {', '.join(map(visible, names[:5]))}: its header is damaged.")
    return int(done.stdout)


def _schema(file: Any, names: Sequence[str]) -> Any:
    import pyarrow as pa

    schema = file.schema_arrow
    return pa.schema([schema.field(name) for name in names], metadata=schema.metadata)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
