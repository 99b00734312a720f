"""Small good files of every format that is read: what the mutator starts from."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

CORPUS = Path(__file__).parent / "corpus"

_GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="d0" for="edge" attr.name="weight" attr.type="double"/>
<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>
<edge source="a" target="b"><data key="d0">1.5</data></edge><edge source="b" target="c"/></graph></graphml>"""
_GML = """graph [ directed 0 node [ id 0 label "a" ] node [ id 1 label "b" ] node [ id 2 label "c" ]
edge [ source 0 target 1 weight 1.5 ] edge [ source 1 target 2 ] ]"""
_MTX = "%%MatrixMarket matrix coordinate real symmetric\n% a comment\n3 3 2\n2 1 1.5\n3 2 0.25\n"


def _saved(write: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        write(path)
        return next(iter(Path(folder).iterdir())).read_bytes()


def _buffer(write: Any) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _png() -> bytes:
    from PIL import Image

    return _buffer(lambda file: Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, "PNG"))


def _trial() -> bytes:
    from geoattn.runs.store import Store

    with tempfile.TemporaryDirectory() as folder:
        Store(folder, "fuzz", 1).write({"x": 1}, {"square": 1})
        return next(Path(folder, "results").iterdir()).read_bytes()


@cache
def seeds() -> dict[str, list[bytes]]:
    """Good files by the name of their target, with what earlier defects left in the corpus."""
    import networkx as nx
    import pandas as pd
    import scipy.sparse as sparse
    import torch
    from safetensors.numpy import save

    import geoattn as ga
    from geoattn.models import LViT, LViTConfig, save_lvit
    from tests.assurance.fault_jobs import small_profile

    maps = np.random.default_rng(0).dirichlet(np.ones(4), (1, 2, 4)).astype(np.float32)
    frame = pd.DataFrame({"text": ["good", "bad\nfilm", ""], "label": [1, 0, 1], "image": [b"a", b"b", None]})
    small = LViTConfig(image_size=8, patch_size=4, dim=8, depth=1, dim_head=8, mlp_dim=8)
    run = ga.simulate(torch.eye(3, dtype=torch.float64), until=0.1, save=2)
    pieces = b"".join(struct.pack("<fi", 0.0, 1) + b"a" for _ in range(3))
    found = {
        "attention.npy": [_buffer(lambda f: np.save(f, maps)), _buffer(lambda f: np.save(f, maps[0].astype(">f8")))],
        "attention.npz": [
            _buffer(lambda f: np.savez(f, a=maps)), _buffer(lambda f: np.savez_compressed(f, a=maps, b=maps))],
        "attention.safetensors": [save({"a": maps, "b": maps[0].astype(np.float16)}, {"format": "np"})],
        "graph.npz": [_buffer(lambda f, m=m: sparse.save_npz(f, m)) for m in (
            sparse.csr_array(np.ones((3, 3))), sparse.coo_array(np.eye(3)), sparse.dia_array(np.eye(3)))],
        "graph.graphml": [_GRAPHML.encode()],
        "graph.gml": [_GML.encode()],
        "graph.mtx": [_MTX.encode()],
        "graph.edgelist": [b"a b 1.5\nb c 2\n# comment\nc a 1e-3\n", b"source,target\n1,2\n2,3\n"],
        "curvature.npz": [_saved(ga.ollivier_ricci(maps.astype(float)).save)],
        "edges.npz": [_saved(ga.ollivier_ricci(nx.house_graph(), "grc-0.6").save)],
        "profile.npz": [_saved(small_profile().save)],
        "trajectory.npz": [_saved(run.save)],
        "trial.json": [_trial()],
        "packed.jsonl": [json.dumps({"key": "a", "config": {"x": 1}, "result": 1, "checksum": ""}).encode() + b"\n"],
        "plan.json": [json.dumps({"study": "fuzz", "version": 1, "size": "small", "configs": [{"x": 1}]}).encode()],
        "recipe.json": [json.dumps({"regularisers": [["variance", {"direction": "increase"}]]}).encode()],
        "log.jsonl": [b'{"step": 1, "loss": 2.5}\n{"step": 2, "epoch": 1, "loss": 1e-3}\n'],
        "images.gz": [gzip.compress(b"\0\0\x08\3" + struct.pack(">iii", 2, 3, 3) + bytes(18), mtime=0)],
        "rows.jsonl.gz": [gzip.compress(b'{"headline": "a", "is_sarcastic": 1}\n' * 3, mtime=0)],
        "data.txt": ["one\r\ntwo \u00e9\n\nfour".encode()],
        "data.csv": [frame.drop(columns="image").to_csv(index=False).encode()],
        "data.jsonl": [b'{"text": "a", "label": 1}\n\n{"text": "b", "tags": [1, {"x": null}]}\n'],
        "data.parquet": [
            _buffer(frame.to_parquet), _buffer(lambda f: frame[["text"]].to_parquet(f, compression="zstd"))],
        "image.png": [_png()],
        "lvit.safetensors": [_saved(lambda path: save_lvit(LViT(small), path, accuracy=0.5))],
        "model.bin": [struct.pack("<7i", 4, 4, 1, 2, 1, 259, 2) + bytes(5_000)],
        "tokenizer.bin": [struct.pack("<i", 1) + pieces],
        "config.json": [json.dumps({
            "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9,
            "intermediate_size": 8, "max_position_embeddings": 16}).encode()],
    }  # fmt: skip
    for path in sorted(CORPUS.glob("*/*")):
        found[path.parent.name].append(path.read_bytes())
    return found
