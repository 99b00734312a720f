from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

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
    tolerance: float,
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
    distance: Doubles,
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
def solve_sparse(
    out_start: NDArray[np.int64],
    out_column: NDArray[np.int32],
    out_length: Doubles,
    in_start: NDArray[np.int64],
    in_column: NDArray[np.int32],
    in_length: Doubles,
    measure_start: NDArray[np.int64],
    measure_column: NDArray[np.int32],
    mass: Doubles,
    pairs: NDArray[np.int32],
    lengths: Doubles,
    w1: Doubles,
    denominator: Doubles,
    distance: Doubles,
    gap: Doubles,
    status: NDArray[np.uint8],
    upstream: Doubles | None = None,
    to_lengths: Doubles | None = None,
    to_measures: Doubles | None = None,
    second_start: NDArray[np.int64] | None = None,
    second_column: NDArray[np.int32] | None = None,
    second_mass: Doubles | None = None,
    *,
    directed: bool,
    near: bool,
    per_length: bool,
    hop: float,
    floor: float,
    idle: float,
    threads: int,
    progress: Callable[[int], Any] | None = None,
) -> None: ...

Addresses = tuple[int, ...]  # of float32 arrays in C order; 0 for none

def feed_forward(
    rows: int,
    width: int,
    middle: int,
    epsilon: float,
    seed: int,
    inner: int,
    outer: int,
    inputs: Addresses,
    kept: Addresses,
    out: int,
    by_out: int,
    gradients: Addresses,
) -> None: ...
def projection(
    samples: int,
    tokens: int,
    width: int,
    heads: int,
    dim: int,
    epsilon: float,
    inputs: Addresses,
    moments: int,
    out: Addresses,
    by_out: Addresses,
    gradients: Addresses,
) -> None: ...
def attention(
    maps: int,
    tokens: int,
    dim: int,
    scale: float,
    seed: int,
    dropped: int,
    inputs: Addresses,
    weights: int,
    out: int,
    by_out: int,
    gradients: Addresses,
) -> None: ...
def dropout_factors(
    seed: int, dropped: int, first: int, step: int, rows: int, each: int, width: int, to: int
) -> None: ...
def map_variance(
    maps: int,
    tokens: int,
    dim: int,
    scale: float,
    query: int,
    key: int,
    squares: int,
    to_query: int,
    to_key: int,
) -> None: ...
