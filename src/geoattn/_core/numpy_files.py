"""NumPy's .npy and .npz files: nothing is allocated before the header is known to tell the truth."""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from geoattn._core.read_limit import check_need

__all__ = ["npz_names", "read_npy", "read_npz"]

_ENTRY = 46  # bytes of a member in the directory of an archive, at least
_ENTRY_IN_MEMORY = 1000  # bytes that Python takes for it
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of a .npy file; ValueError or OSError when it holds something else, or less than it says."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        _check_header(file, size, str(path))
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def npz_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of the arrays of a .npz file."""
    with open(path, "rb") as file, _archive(file, path) as archive:
        return [_name(info) for info in archive.infolist()]


def read_npz(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of a .npz file by name, all of them by default; KeyError for a name that it has not.

    All headers are read before any array is: together the arrays may take what `allowance` says.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
    >>> np.savez_compressed(path, a=np.zeros(3), b=np.ones(2))
    >>> read_npz(path, ["b"])
    {'b': array([1., 1.])}
    """
    with open(path, "rb") as file, _archive(file, path) as archive:
        members = {_name(info): info for info in archive.infolist()}
        wanted = {name: members[name] for name in (members if names is None else names)}
        need = 0
        for name, info in wanted.items():
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name} is packed in a way that NumPy does not write")
            with archive.open(info) as member:
                need += _check_header(member, info.file_size, name)
            check_need(path, need, f"its arrays, unpacked from {os.fstat(file.fileno()).st_size:,} bytes")
        arrays = {}
        for name, info in wanted.items():
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                if member.read(1):  # at the end of a member its checksum is compared
                    raise ValueError(f"{name} is longer than its header says")
        return arrays


def _name(info: zipfile.ZipInfo) -> str:
    return info.filename.removesuffix(".npy")


def _check_header(file: Any, size: int, name: str) -> int:
    """The bytes of an array in memory by its header, which must be what the rest of the file holds."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{name} has version {version[0]}.{version[1]} of the format, which is for other arrays")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects")
    count = math.prod(shape)
    if count < 0 or (dtype.itemsize == 0 and count):
        raise ValueError(f"{name} has shape {shape} and dtype {dtype}")
    promised, held = count * dtype.itemsize, size - file.tell()
    if promised != held:
        raise ValueError(f"the header of {name} promises {promised:,} bytes, and {held:,} follow")
    return promised


def _archive(file: Any, path: Any) -> zipfile.ZipFile:
    """The open archive; its directory is small enough for memory."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 66_000))
    tail = file.read()
    end = tail.rfind(b"PK\5\6")
    if 0 <= end <= len(tail) - 22:
        (directory,) = struct.unpack_from("<I", tail, end + 12)
        entries = min(directory, size) // _ENTRY
        check_need(path, entries * _ENTRY_IN_MEMORY, f"a list of {entries:,} arrays")
    file.seek(0)
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(str(error)) from None
