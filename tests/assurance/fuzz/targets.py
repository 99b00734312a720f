"""What reads each format. A target takes a path; it may raise a GeoattnError of one line, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError

Target = Callable[[Path], Any]


def attention(path: Path) -> None:
    from geoattn.datasets.attention_files import open_attention

    for layer in open_attention(path)[:3]:
        maps = layer.maps()
        if maps.shape[-1] <= 16 and maps.size <= 4096:
            from geoattn import ollivier_ricci

            ollivier_ricci(maps, edges=2, threads=1)


def graph(path: Path) -> None:
    from geoattn.curvature.ollivier import ollivier_ricci
    from geoattn.graph.graph_files import is_graph_file, read_graph_file

    if is_graph_file(path):
        read = read_graph_file(path)
        size = len(read) if hasattr(read, "nodes") else max(read.shape)
        if size <= 64:
            ollivier_ricci(read, "hop" if not getattr(read, "is_directed", bool)() else "markov", edges=2, threads=1)


def loader(name: str) -> Target:
    def load(path: Path) -> None:
        import geoattn as ga
        from geoattn.curvature.sparse.result import EdgeCurvature
        from geoattn.dynamics.trajectory import Trajectory
        from geoattn.profiles.result import Profile

        kinds = {
            "curvature": ga.curvature.Curvature,
            "edges": EdgeCurvature,
            "profile": Profile,
            "trajectory": Trajectory,
        }
        kinds[name].load(path)

    return load


def trial(path: Path) -> None:
    from geoattn.runs.store import Store

    store = Store(path.parent / "store", "fuzz", 1)
    target = store._result({"x": 1})
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    store.is_done({"x": 1}), store.is_damaged({"x": 1}), store.status([{"x": 1}])
    store.read({"x": 1})


def packed(path: Path) -> None:
    from geoattn.runs.packed import PackedTrials

    read = PackedTrials(path)
    assert "nothing" not in read or read.get("nothing") is not None


def plan(path: Path) -> None:
    from geoattn.runs.plan import _planned

    assert _planned(path) is None or isinstance(_planned(path), dict)


def recipe(path: Path) -> None:
    from geoattn.training.run_folder import read_run

    folder = path.parent / "run"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "recipe.json")
    (folder / "log.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    read_run(folder)


def log(path: Path) -> None:
    from geoattn.training.run_folder import read_run

    folder = path.parent / "logged"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "log.jsonl")
    (folder / "recipe.json").write_text("{}")
    read_run(folder).series("loss")


def idx(path: Path) -> None:
    from geoattn.datasets.formats import read_idx

    folder = path.parent / "idx"
    folder.mkdir(exist_ok=True)
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        shutil.copyfile(path, folder / name)
    read_idx(folder, "train")


def rows(path: Path) -> None:
    from geoattn.datasets.formats import read_jsonl

    folder = path.parent / "rows"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "x.json.gz")
    read_jsonl(folder, ("headline",), "is_sarcastic")


def data(path: Path) -> None:
    from geoattn.datasets.forms.registry import read_samples

    read_samples(path)


def image(path: Path) -> None:
    from geoattn.datasets.forms.images import open_picture

    assert open_picture(path, "image").dtype == np.uint8


def lvit(path: Path) -> None:
    from geoattn.models.lvit_file import load_lvit

    load_lvit(path)


def llama(path: Path) -> None:
    from geoattn.models.llama2c import load_llama2c

    folder = path.parent / "llama"
    folder.mkdir(exist_ok=True)
    for name in ("model.bin", "tok.bin"):
        if not (folder / name).exists() or name.startswith(path.stem[:3]):
            shutil.copyfile(path, folder / name)
    load_llama2c(folder)


def config(path: Path) -> None:
    from geoattn.models.loading import load_model

    folder = path.parent / "model"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "config.json")
    load_model(folder, weights="random")


#: By the name of the file that a target gets.
TARGETS: dict[str, Target] = {
    **dict.fromkeys(("attention.npy", "attention.npz", "attention.safetensors"), attention),
    **dict.fromkeys(("graph.npz", "graph.graphml", "graph.gml", "graph.mtx", "graph.edgelist"), graph),
    **{f"{name}.npz": loader(name) for name in ("curvature", "edges", "profile", "trajectory")},
    "trial.json": trial, "packed.jsonl": packed, "plan.json": plan, "recipe.json": recipe, "log.jsonl": log,
    "images.gz": idx, "rows.jsonl.gz": rows, "image.png": image, "lvit.safetensors": lvit,
    "model.bin": llama, "tokenizer.bin": llama, "config.json": config,
    **dict.fromkeys(("data.txt", "data.csv", "data.jsonl", "data.parquet"), data),
}  # fmt: skip


def try_file(name: str, content: bytes, folder: Path) -> str | None:
    """What is wrong with the answer to a file: None, or a traceback."""
    import traceback
    import warnings

    path = folder / name
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TARGETS[name](path)
    except GeoattnError as error:
        return None if "\n" not in str(error) else f"more than one line: {error}"
    except BaseException:
        return traceback.format_exc()
    return None
