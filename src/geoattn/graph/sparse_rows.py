"""Rows of a sparse matrix as the kernel takes them, and what is done with their entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

__all__ = ["SparseRows"]


@dataclass(frozen=True)
class SparseRows:
    """A square sparse matrix by rows: entries of row v are start[v] .. start[v + 1], columns ascending, each once."""

    start: Int[np.ndarray, " n1"]
    column: Int[np.ndarray, " e"]
    value: Float[np.ndarray, " e"]

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """From a SciPy sparse matrix; duplicate entries are summed, as SciPy has it."""
        csr = matrix.tocsr()
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        start, column = csr.indptr.astype(np.int64, copy=False), csr.indices.astype(np.int32, copy=False)
        return cls(start, column, np.ascontiguousarray(csr.data, dtype=np.float64))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.start) - 1

    @property
    def row(self) -> Int[np.ndarray, " e"]:
        """The row of each entry."""
        return np.repeat(np.arange(self.n, dtype=np.int32), np.diff(self.start))

    def csr(self) -> Any:
        """As a SciPy array that shares the memory."""
        from scipy.sparse import csr_array

        return csr_array((self.value, self.column, self.start), shape=(self.n, self.n))

    def transposed(self) -> SparseRows:
        """Rows become columns."""
        return SparseRows.of(self.csr().T)

    def with_values(self, value: Float[np.ndarray, " e"]) -> SparseRows:
        """Other values in the same places."""
        return SparseRows(self.start, self.column, np.ascontiguousarray(value, dtype=np.float64))

    def keep(self, kept: Any) -> SparseRows:
        """Only the entries that a boolean array marks."""
        ends = np.concatenate([[0], np.cumsum(kept)])[self.start]
        return SparseRows(ends.astype(np.int64), self.column[kept], self.value[kept])

    def with_diagonal(self) -> tuple[SparseRows, Int[np.ndarray, " e"], Int[np.ndarray, " n"]]:
        """The same places and the diagonal, values 0; where the old entries are among the new ones; the diagonal."""
        n, row = self.n, self.row
        has = np.zeros(n, dtype=np.int64)
        has[row[self.column == row]] = 1
        start = self.start + np.concatenate([[0], np.cumsum(1 - has)])
        shift = (start[:-1] - self.start[:-1])[row]
        place = np.arange(len(row)) + shift + ((self.column > row) & (has[row] == 0))
        diagonal = start[:-1] + np.bincount(row[self.column < row], minlength=n)
        column = np.empty(int(start[-1]), dtype=np.int32)
        column[place] = self.column
        column[diagonal] = np.arange(n)
        return SparseRows(start, column, np.zeros(len(column))), place, diagonal

    def row_sums(self, value: Any = None) -> Float[np.ndarray, " n"]:
        """The sum of each row, of these values or of others in their places; 0 for an empty row."""
        value = self.value if value is None else value
        sums = np.zeros(self.n)
        full = np.flatnonzero(np.diff(self.start))
        if len(full):
            sums[full] = np.add.reduceat(value, self.start[full])
        return sums

    def find(self, row: Any, column: Any) -> tuple[Int[np.ndarray, " k"], np.ndarray]:
        """Place of each entry (row, column), and whether there is one; O(log e) each."""
        keys = self.row.astype(np.int64) * self.n + self.column
        wanted = np.asarray(row, np.int64) * self.n + np.asarray(column, np.int64)
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return place, keys[place] == wanted if len(keys) else np.zeros(len(wanted), bool)

    def at(self, row: Any, column: Any) -> Float[np.ndarray, " k"]:
        """The values at (row, column), 0 where there is none."""
        place, found = self.find(row, column)
        return np.where(found, self.value[place] if len(self.value) else 0.0, 0.0)
