"""The file formats of the data sets: idx, parquet, npz, JSON lines. Nothing in a file is executed.

Each reader gives the inputs of one split and their labels. Inputs are texts, encoded images (bytes), or
pixels (b, channel, height, width); `decode` turns those encoded images that are wanted into pixels.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int, UInt8

from geoattn._core.errors import GeoattnError
from geoattn._core.numpy_files import read_npz as read_arrays
from geoattn._core.parquet_files import open_parquet, read_columns
from geoattn._core.read_limit import Budget, check_need, memory_of
from geoattn._core.text_files import lines_of, open_bytes, parse_json
from geoattn._core.visible import visible

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Inputs", "checksum", "columns_of", "decode", "read_idx", "read_jsonl", "read_npz", "read_parquet"]

# Axes without a name: whether inputs and labels are equally many is checked by the loader, with a message.
Inputs = UInt8[np.ndarray, "_ _ _ _"] | list[bytes] | list[str]
Labels = Int[np.ndarray, " _"]
_BLOCK = 1 << 20  # bytes that are unpacked at a time


def read_idx(folder: Path, split: str) -> tuple[Inputs, Labels]:
    """MNIST's own format, gzipped or not: ``train-images-idx3-ubyte.gz``, ...; the test set is ``t10k``."""
    prefix = {"train": "train", "test": "t10k"}[split]
    images = _read_idx_file(folder, f"{prefix}-images-idx3-ubyte", 3)
    labels = _read_idx_file(folder, f"{prefix}-labels-idx1-ubyte", 1)
    return images[:, None], labels.astype(np.int64)


def _read_idx_file(folder: Path, name: str, axes: int) -> np.ndarray:
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)
    if path is None:
        raise GeoattnError(f"{folder} has no file {name}.gz; copy it there or choose another root.")
    with _reading(path, "gzip file" if path.suffix == ".gz" else "idx file"), open_bytes(path) as file:
        header = file.read(4 + 4 * axes)
        if len(header) < 4 + 4 * axes or header[:4] != bytes((0, 0, 8, axes)):
            raise GeoattnError(f"{path} is not an idx file of {axes} axes of bytes; get it again.")
        shape = tuple(int(n) for n in np.frombuffer(header, ">i4", axes, 4))
        size = math.prod(shape) if min(shape) >= 0 else -1
        check_need(path, size, f"{' x '.join(map(str, shape))} bytes by its header")
        data = bytearray()  # grows with what is there: a header that lies about it costs nothing
        while len(data) <= size and (piece := file.read(min(_BLOCK, size + 1 - len(data)))):
            data += piece
    if len(data) != size:
        held = f"{len(data):,}" if len(data) < size else "more"
        raise GeoattnError(
            f"{path}: its header says {' x '.join(map(str, shape))} bytes, but it holds {held}; get it again."
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


def read_parquet(folder: Path, split: str, columns: Sequence[str], label: str) -> tuple[Inputs, Labels]:
    """Files ``<split>*.parquet`` with the hub's columns: a text, or an image {bytes, path}, and a label."""
    import pyarrow as pa

    paths = sorted(folder.glob(f"{split}*.parquet"))
    if not paths:
        raise GeoattnError(f"{folder} has no file {split}.parquet; copy it there or choose another root.")
    tables = []
    for path in paths:
        with open_parquet(path, path) as file:
            present = file.schema_arrow.names
            names = [name for name in (*columns, label) if name in present]
            tables.append(read_columns(file, path, names if len(names) > 1 else None))
    return columns_of(pa.concat_tables(tables), columns, label, str(folder))


def columns_of(table: pa.Table, columns: Sequence[str], label: str, where: str) -> tuple[Inputs, Labels]:
    """Inputs and labels of a table with the columns of the hub."""
    import pyarrow as pa

    found = next((c for c in columns if c in table.column_names), None)
    if found is None or label not in table.column_names:
        raise GeoattnError(
            f"{where}: expected columns {' or '.join(columns)} and {label}; got"
            f" {', '.join(map(visible, table.column_names[:20]))}."
        )
    column = table.column(found)
    if pa.types.is_struct(column.type):
        column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks])
    if column.null_count or table.column(label).null_count:
        raise GeoattnError(f"{where}: some rows have no {found} or no {label}; get the files again.")
    return column.to_pylist(), table.column(label).to_numpy().astype(np.int64)


def read_npz(path: Path, split: str) -> tuple[Inputs, Labels]:
    """CIFAR-10's batches as arrays ``<batch>_x`` (b, 32, 32, 3) and ``<batch>_y``; surplus labels are cut."""
    images, labels = [], []
    batches = ("test_batch",) if split == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    with _reading(path, "npz file"):
        data = read_arrays(path, [f"{batch}_{part}" for batch in batches for part in "xy"])
    for batch in batches:
        x, y = data.pop(f"{batch}_x"), data.pop(f"{batch}_y")
        if x.ndim != 4 or y.ndim != 1 or y.dtype.kind not in "iu":
            raise GeoattnError(f"{path}: {batch} must be images (b, 32, 32, 3) and whole numbers; get it again.")
        images.append(x)
        labels.append(y[: len(x)])
    return np.concatenate(images).transpose(0, 3, 1, 2), np.concatenate(labels).astype(np.int64)


def read_jsonl(folder: Path, columns: Sequence[str], label: str) -> tuple[Inputs, Labels]:
    """One JSON object per line, gzipped or not."""
    paths = sorted(p for pattern in ("*.json.gz", "*.json", "*.jsonl.gz", "*.jsonl") for p in folder.glob(pattern))
    if len(paths) != 1:
        raise GeoattnError(f"{folder}: expected one file of JSON lines (.json.gz, .json); got {len(paths)}.")
    path, texts, labels = paths[0], [], []
    budget = Budget(path, "its texts")
    with _reading(path, "gzip file" if path.suffix == ".gz" else "text file"):
        for number, line in enumerate(lines_of(path), 1):
            try:
                row = parse_json(line)
                texts.append(str(row[columns[0]]))
                labels.append(int(np.int64(int(row[label]))))
            except (ValueError, KeyError, TypeError, OverflowError):
                raise GeoattnError(
                    f"{path}, line {number}: expected a JSON object with {columns[0]} and {label}; got {line[:60]!r}."
                ) from None
            budget.spend(memory_of(texts[-1]) + memory_of(labels[-1]))
    return texts, np.array(labels, dtype=np.int64)


def decode(encoded: Sequence[bytes], shape: tuple[int, int, int], where: str) -> UInt8[np.ndarray, "b c h w"]:
    """Encoded images (PNG, JPEG) to pixels."""
    from PIL import Image

    from geoattn.datasets.forms.images import open_image

    channels, height, width = shape
    images = np.empty((len(encoded), *shape), dtype=np.uint8)
    for row, data in enumerate(encoded):
        try:
            with open_image(data, f"{where}, row {row}") as image:
                pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
        except (OSError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
            raise GeoattnError(f"{where}, row {row}: not an image ({error}); get the files again.") from None
        if pixels.shape[:2] != (height, width):
            raise GeoattnError(f"{where}, row {row}: expected {height} x {width} pixels; got {pixels.shape[:2]}.")
        images[row] = pixels if channels == 1 else pixels.transpose(2, 0, 1)
    return images


def checksum(inputs: Any, labels: Labels) -> str:
    """SHA-256 over the sorted SHA-256 of the rows (input, then label), so the order does not matter."""
    rows = (
        x.encode() if isinstance(x, str) else x if isinstance(x, bytes) else np.ascontiguousarray(x).tobytes()
        for x in inputs
    )  # fmt: skip
    digests = [hashlib.sha256(row + b"\0%d" % label).digest() for row, label in zip(rows, labels, strict=True)]
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Any failure to read ``path`` becomes one line."""
    try:
        yield
    except GeoattnError:
        raise
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zlib.error) as error:
        reason = str(error).split("\n")[0].strip() or type(error).__name__
        raise GeoattnError(f"{path} is not a complete {what} ({reason}); get it again.") from None
