"""Sparse matrices in Matrix Market files (.mtx), read line by line by NumPy.

SciPy's own reader believes the header and the indices of a file, and a damaged one ends the process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.graph.graph_bounds import check_nodes

__all__ = ["read_matrix_market"]

_FIELDS = ("real", "double", "integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_LONGEST = 1 << 20  # bytes of a comment
_SHORTEST = 4  # bytes of an entry: two numbers, a blank and the end of the line


def read_matrix_market(path: Path) -> Any:
    r"""The matrix as a SciPy ``coo_array``; the other half of a symmetric one is filled in.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.mtx"
    >>> _ = path.write_text("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n2 1 0.5\n")
    >>> read_matrix_market(path).toarray()
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    from scipy.sparse import coo_array

    with open(path, "rb") as file:
        field, symmetry = _kind(path, file.readline(1000))
        rows, columns, count = _sizes(path, file)
        rest = path.stat().st_size - file.tell()
        if count > rest // _SHORTEST + 1:
            raise GeoattnError(
                f"{path} cannot be read: its header says {count:,} entries, and {rest:,} bytes follow. Is it complete?"
            )
        check_nodes(path, max(rows, columns), 2 * count)
        width = 2 if field == "pattern" else 3
        if count == 0:
            return coo_array((rows, columns))
        try:
            entries = np.loadtxt(file, comments="%", ndmin=2, max_rows=count + 1)
        except ValueError as error:
            raise GeoattnError(f"{path}: an entry cannot be read ({' '.join(str(error).split())}).") from None
    if entries.shape != (count, width):
        raise GeoattnError(
            f"{path} cannot be read: its header says {count:,} entries of {width} numbers; {entries.shape[0]:,} of"
            f" {entries.shape[1]} were found. Is it complete?"
        )
    place = entries[:, :2]
    if not ((place >= 1) & (place <= (rows, columns)) & (place == np.floor(place))).all():
        raise GeoattnError(f"{path}: rows and columns must lie in 1 .. {rows:,} and 1 .. {columns:,}.")
    row, column = place.astype(np.int64).T - 1
    value = np.ones(count) if field == "pattern" else entries[:, 2]
    if symmetry != "general":
        other = row != column
        sign = -1.0 if symmetry == "skew-symmetric" else 1.0
        row, column = np.concatenate([row, column[other]]), np.concatenate([column, row[other]])
        value = np.concatenate([value, sign * value[other]])
    return coo_array((value, (row, column)), shape=(rows, columns))


def _kind(path: Path, line: bytes) -> tuple[str, str]:
    words = line.decode("ascii", "replace").lower().split()
    if words[:2] != ["%%matrixmarket", "matrix"] or len(words) != 5:
        raise GeoattnError(f"{path} is not a Matrix Market file of a matrix.")
    if words[2] == "array":
        raise GeoattnError(f"{path} holds a dense matrix; save it as .npy.")
    if words[2] != "coordinate" or words[3] not in _FIELDS or words[4] not in _SYMMETRIES:
        raise GeoattnError(
            f"{path}: expected coordinates of real numbers or a pattern; got {' '.join(words[2:])[:60]!r}."
        )
    return words[3], words[4]


def _sizes(path: Path, file: Any) -> tuple[int, int, int]:
    line = file.readline(_LONGEST)
    while line and (line.startswith(b"%") or not line.strip()):
        line = file.readline(_LONGEST)
    words = line.split()
    if len(words) != 3 or not all(word.isdigit() and len(word) < 19 for word in words):
        raise GeoattnError(f"{path}: expected rows, columns and entries after the header; got {line[:60]!r}.")
    rows, columns, count = map(int, words)
    return rows, columns, count
