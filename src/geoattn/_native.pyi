from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Place = tuple[int, int, int, int]  # address, strides of batch, heads and rows
Sizes = tuple[int, int, int, int, int]  # batch, heads, queries, keys, width

def instruction_set() -> str: ...
def solve(
    lengths: Doubles,
    measures: Doubles,
    pairs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    w1: Doubles,
    denominator: Doubles,
    distance: Doubles,
    gap: Doubles,
    status: NDArray[np.uint8],
    trees: NDArray[np.int32] | None = None,
    potentials: Doubles | None = None,
    *,
    directed: bool,
    per_length: bool,
    floor: float,
    idle: float,
    threads: int,
    progress: Callable[[int], Any] | None = None,
) -> None: ...
def pull_back(
    lengths: Doubles,
    measures: Doubles,
    pairs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    w1: Doubles,
    denominator: Doubles,
    status: NDArray[np.uint8],
    trees: NDArray[np.int32],
    upstream: Doubles,
    to_lengths: Doubles,
    to_measures: Doubles,
    *,
    directed: bool,
    per_length: bool,
    idle: float,
    threads: int,
) -> None: ...
def list_edges(lengths: Doubles, directed: bool) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]: ...
def lay_out(
    columns: list[NDArray[Any]], places: NDArray[np.int64], maps: list[NDArray[Any]], directed: bool, no_edge: int
) -> None: ...
def shortest_paths(distances: Doubles, *, directed: bool, threads: int) -> None: ...
def row_variances(
    queries: list[Place], keys: list[Place], sizes: Sizes, scale: float, variance: int, slope: int, threads: int
) -> None: ...
def row_variance_gradients(
    queries: list[Place],
    keys: list[Place],
    sizes: Sizes,
    slopes: list[int],
    upstream: int,
    to_query: list[int],
    to_key: list[int],
    threads: int,
) -> None: ...

class RowVariances:
    slope: int
    def __init__(
        self,
        query: int,
        query_strides: tuple[int, ...],
        key: int,
        key_strides: tuple[int, ...],
        shape: tuple[int, ...],
        scale: float,
        threads: int,
        slope: int,
        owner: object,
    ) -> None: ...
    def copy_to(self, variance: int) -> None: ...
