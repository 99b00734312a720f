"""Small files that would take gigabytes if their readers believed them, and one child process that reads them all.

    python -m tests.assurance.bombs FOLDER

prints a line of JSON for each bomb: what was said, and by how much the process grew at most.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GB = 10**9


def packed(size: int, head: bytes = b"", byte: bytes = b"\0") -> bytes:
    """A deflate stream of ``head`` and ``size`` equal bytes, without packing each of them."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = pack.compress(head) + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(byte * (1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    rest = pack.compress(byte * (size % (1 << 20))) + pack.flush()
    return start + block * (size >> 20) + rest


def gz(size: int, head: bytes, byte: bytes = b"\0") -> bytes:
    return b"\x1f\x8b\x08\0\0\0\0\0\2\xff" + packed(size, head, byte) + bytes(8)


def npy_header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def npz(path: Path, shape: tuple[int, ...], promised: tuple[int, ...] | None = None, name: str = "a") -> Path:
    """An archive whose array unpacks to zeros of ``shape``; its header says ``promised``."""
    head = npy_header(promised or shape)
    size = 4 * math.prod(shape)
    data, member = packed(size, head), f"{name}.npy".encode()
    sizes = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 0, len(data), size + len(head), len(member), 0)
    local = b"PK\3\4" + sizes + member
    entry = b"PK\1\2" + struct.pack("<H", 20) + sizes + struct.pack("<HHHII", 0, 0, 0, 0, 0) + member
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(data), 0)
    return written(path, local + data + entry + end)


def sparse_npz(path: Path) -> Path:
    np.savez(path, format=np.array(b"coo"), shape=np.array([10**12, 10**12]), data=np.ones(1), row=[0], col=[1])
    return path


def parquet(path: Path, **columns: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, store_schema=False)
    return path


def repeated(text: Any, times: int) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([text]))


def png(path: Path, width: int, height: int) -> Path:
    """A black image of any size in few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"\x78\x01" + packed(height * (width + 1)) + bytes(4)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


def written(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def config(folder: Path, content: str) -> Path:
    written(folder / "config.json", content)
    written(folder / "model.safetensors", struct.pack("<Q", 2) + b"{}")
    return folder


def lvit_file(path: Path, **settings: int) -> Path:
    about = json.dumps({"config": settings, "notes": {}})
    head = json.dumps({"__metadata__": {"lvit": about}}).encode()
    return written(path, struct.pack("<Q", len(head)) + head)


def bombs(folder: Path) -> dict[str, tuple[list[str] | Callable[[], Any], str]]:
    """By name: arguments of the command line, or a call, and words that the answer must hold."""
    from geoattn.curvature.result import Curvature
    from geoattn.datasets.forms.registry import read_samples
    from geoattn.datasets.loader import load_data
    from geoattn.dynamics.trajectory import Trajectory
    from geoattn.models.llama2c import load_llama2c
    from geoattn.models.loading import load_model
    from geoattn.profiles.result import Profile
    from geoattn.training.run_folder import read_run

    big = (1, 28_284, 28_284)  # 3.2 GB of float32
    idx = b"\0\0\x08\3" + struct.pack(">iii", 60_000, 28, 28)
    mnist, headlines = folder / "mnist", folder / "headlines"
    written(mnist / "train-images-idx3-ubyte.gz", gz(3 * GB, idx))
    written(mnist / "train-labels-idx1-ubyte.gz", gzip.compress(b"\0\0\x08\1" + struct.pack(">i", 0)))
    written(headlines / "x.jsonl.gz", gz(2 * GB, b'{"headline": "a", "is_sarcastic": 1}\n', b"\n"))
    huge = {"model_type": "bert", "hidden_size": 65_536, "intermediate_size": 262_144, "num_attention_heads": 64}
    deep = '{"model_type": "bert", "a": ' + "[" * 1000 + "]" * 1000 + "}"
    coordinate = "%%MatrixMarket matrix coordinate real general\n"
    laughs = '<!ENTITY l0 "ha">' + "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 10))
    curvature = lambda path, *more: ["curvature", str(path), *more]  # noqa: E731
    report = lambda path, *more: ["report", "lvit-digits", "--data", str(path), *more]  # noqa: E731
    lines = written(folder / "many.edgelist", "")
    with open(lines, "w") as file:
        file.writelines(f"{k} {k + 1}\n" for k in range(400_000))
    llama = folder / "llama"
    written(llama / "model.bin", struct.pack("<7i", 2**31 - 1, 2**31 - 1, 2**31 - 1, 1, 1, 2**31 - 1, 2**31 - 1))
    written(llama / "tok.bin", b"\0" * 64)
    return {
        "npz of 3.2 GB": (curvature(npz(folder / "a.npz", big)), "asks for 3.2 GB of memory"),
        "npz whose header promises less": (
            curvature(npz(folder / "less.npz", (1, 20_000, 20_000), (1, 4, 4))), "promises 64 bytes"),
        "npz whose header promises more": (
            curvature(npz(folder / "more.npz", (1, 4, 4), (1, 100_000, 100_000))), "damaged, truncated"),
        "npy whose header promises more": (
            curvature(written(folder / "a.npy", npy_header((1, 10**6, 10**6)))), "damaged, truncated"),
        "mask whose header promises more": (
            ["curvature", "--mask", str(written(folder / "m.npy", npy_header((10**11,), "|b1")))], "promises"),
        "tokens whose header promises more": (
            ["simulate", "--tokens", str(written(folder / "t.npy", npy_header((10**10, 3), "<f8")))], "promises"),
        "profile of 3.2 GB": (lambda: Profile.load(folder / "a.npz"), "asks for 3.2 GB"),
        "curvature of 3.2 GB": (lambda: Curvature.load(npz(folder / "meta.npz", big, name="meta")), "not a curvature"),
        "trajectory of 3.2 GB": (lambda: Trajectory.load(folder / "a.npz"), "asks for 3.2 GB"),
        "sparse npz of 10^12 nodes": (curvature(sparse_npz(folder / "s.npz")), "asks for 100,000 GB"),
        "mtx of 10^12 nodes": (
            curvature(written(folder / "n.mtx", f"{coordinate}{10**12} {10**12} 1\n1 1 1\n")),
            "asks for 100,000 GB"),
        "mtx of 10^12 entries": (
            curvature(written(folder / "e.mtx", f"{coordinate}9 9 {10**12}\n1 1 1\n")),
            "its header says 1,000,000,000,000 entries"),
        "dense mtx": (
            curvature(written(folder / "d.mtx", "%%MatrixMarket matrix array real general\n99999999 99999999\n1\n")),
            "holds a dense matrix"),
        "graphml with entities": (
            curvature(written(folder / "l.graphml", f"<!DOCTYPE g [{laughs}]><g>&l9;</g>")), "entities"),
        "graphml without end": (curvature(written(folder / "n.graphml", "<g>" * 10**6)), "nested more than"),
        "gml without end": (curvature(written(folder / "n.gml", "graph [ " * 2 * 10**6)), "asks for 2.5 GB"),
        "200MB: edge list of 400,000": (curvature(lines), "asks for more than 200 MB"),
        "edge list in one line": (curvature(written(folder / "one.edges", "1" * 5 * 10**6)), "a line of more than"),
        "idx.gz of 3 GB": (lambda: load_data("mnist", folder), "holds more"),
        "jsonl.gz of 2 GB": (lambda: load_data("headlines", folder), "line 2: "),
        "parquet column of 2 GB": (
            report(parquet(folder / "t.parquet", text=repeated("a" * 10**6, 2000))), "asks for more than 500 MB"),
        "parquet column of numbers": (
            report(parquet(folder / "n.parquet", a=np.zeros(7 * 10**7, np.int8)), "--column", "a"), "its numbers"),
        "csv of empty cells": (
            report(written(folder / "w.csv", "a," * 9_000 + "text\n" + "\n,\n" * 9_000)), "a table of"),
        "200MB: jsonl with a new name in each line": (
            report(written(folder / "k.jsonl", "".join(f'{{"{k}":1}}\n' for k in range(9_000)))), "asks for more"),
        "jsonl nested without end": (
            report(written(folder / "n.jsonl", '{"text": ' + "[" * 10**5 + "]" * 10**5 + "}\n")), "expected a JSON"),
        "png of 30,000 x 30,000": (report(png(folder / "pictures" / "a.png", 30_000, 30_000).parent), "pixels"),
        "config of a huge model": (lambda: load_model(config(folder / "huge", json.dumps(huge))), "asks for"),
        "config of 10^9 layers": (
            lambda: load_model(config(folder / "layers", json.dumps({**huge, "num_hidden_layers": GB}))),
            "num_hidden_layers must be at most"),
        "config of 10^9 labels": (
            lambda: load_model(config(folder / "labels", json.dumps({"model_type": "bert", "num_labels": GB}))),
            "num_labels must be at most"),
        "config of a huge vocabulary, random": (
            lambda: load_model(config(folder / "labels2", json.dumps({"model_type": "bert", "vocab_size": 33_000_000})),
                               weights="random"), "asks for"),
        "config nested without end": (lambda: load_model(config(folder / "deep", deep)), "nested too deep"),
        "config on the command line": (["report", str(folder / "deep"), "--data", "digits"], "nested too deep"),
        "L-ViT of 10^6 layers": (lambda: load_model(lvit_file(folder / "l.safetensors", depth=10**6)), "depth must be"),
        "L-ViT of a huge width": (lambda: load_model(lvit_file(folder / "w.safetensors", dim=2**20)), "asks for"),
        "llama2.c with a header that lies": (lambda: load_llama2c(llama), "is not a model of llama2.c"),
        "run with a nested recipe": (
            lambda: read_run(written(folder / "run" / "recipe.json", "[" * 10**5).parent), "not the folder of"),
        "200MB: texts of 5 x 10^6 empty lines": (
            lambda: read_samples(written(folder / "e.txt", b"a\n" * 5 * 10**6)), "asks for more than"),
    }  # fmt: skip


def peak() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def main(folder: Path) -> None:
    from typer.testing import CliRunner

    from geoattn._core.errors import GeoattnError
    from geoattn.cli.app import app
    from geoattn.models.loading import load_model

    load_model("bert-tiny", weights="random", vocab_size=100)  # what is imported once is not the cost of a file
    for name, (what, words) in bombs(folder).items():
        os.environ["GEOATTN_READ_LIMIT"] = name.split(":")[0] if ":" in name else ""
        forget_peak()
        before = peak()
        if callable(what):
            try:
                said, code = f"read: {what()!r}"[:200], 0
            except GeoattnError as error:
                said, code = str(error), 2
        else:
            done = CliRunner().invoke(app, what, prog_name="geoattn")
            said, code = done.stderr.strip() or repr(done.exception), done.exit_code
        grown = peak() - before
        sys.stdout.write(json.dumps({"name": name, "code": code, "said": said, "words": words, "grown": grown}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main(Path(sys.argv[1]))
