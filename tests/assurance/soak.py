"""Mixed calls for some minutes: memory, threads and open files must not grow.

    python -m tests.assurance.soak MINUTES

prints JSON: calls, and memory, threads and files after a first round and at the end.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def used() -> dict[str, int]:
    """Resident bytes, threads and open files of this process."""
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"bytes": resident, "threads": len(os.listdir("/proc/self/task")), "files": len(os.listdir("/proc/self/fd"))}


def calls(folder: Path) -> list[Any]:
    """One call of each kind, from small to what a user does."""
    import networkx as nx
    import torch

    import geoattn as ga
    from geoattn.datasets.attention_files import open_attention
    from geoattn.training.loop import train
    from geoattn.training.recipe import Recipe

    rng = np.random.default_rng(0)
    maps = rng.dirichlet(np.ones(17), (2, 3, 17))
    tensor = torch.tensor(maps, requires_grad=True)
    model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    np.savez_compressed(folder / "a.npz", a=maps)
    (folder / "bad.npz").write_bytes((folder / "a.npz").read_bytes()[:-30])
    (folder / "g.edgelist").write_text("1 2\n2 3\n3 1\n")
    recipe = Recipe("digits", epochs=1, limit=8, test_limit=8, batch=8, changes={"depth": 1, "dim": 8, "mlp_dim": 8})

    def profiled() -> None:
        made = ga.profile(model, data, edges=4, resamplings=20, examples=1)
        made.save(folder / "p.npz")
        type(made).load(folder / "p.npz").report(folder / "r.html")

    def refused() -> None:
        for name in ("bad.npz", "nothing.npy"):
            try:
                open_attention(folder / name)
            except ga.GeoattnError:
                continue
            raise AssertionError(name)

    def interrupted() -> None:
        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        try:
            ga.ollivier_ricci(maps, threads=2, progress=stop)
        except KeyboardInterrupt:
            pass

    return [
        lambda: ga.ollivier_ricci(maps, threads=2),
        lambda: ga.ollivier_ricci(maps, "hop", edges=5),
        lambda: ga.ollivier_ricci(nx.karate_club_graph(), "grc-0.6", threads=2),
        lambda: ga.curvature_loss(tensor, "markov").backward(),
        lambda: ga.curvature_bounds(maps),
        lambda: ga.spectrum(maps),
        lambda: ga.simulate(torch.eye(3, dtype=torch.float64), until=0.5, save=3).save(folder / "t.npz"),
        lambda: [layer.maps() for layer in open_attention(folder / "a.npz")],
        lambda: ga.ricci_flow(nx.path_graph(6), iterations=1),
        refused,
        interrupted,
        profiled,
        lambda: train(recipe, tempfile.mkdtemp(dir=folder)),
    ]


def main(minutes: float) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        kinds, count = calls(Path(folder)), 0
        end, start = time.monotonic() + 60 * minutes, None
        while True:
            for k, call in enumerate(kinds):
                for _ in range(20 if k < 9 else 1):
                    call()
                    count += 1
            gc.collect()
            rounds = count // (9 * 20 + len(kinds) - 9)
            if rounds == 3:  # what is loaded or kept once is there by now
                start = used()
            if start is not None and (time.monotonic() >= end and rounds >= 6):
                return {"minutes": minutes, "calls": count, "rounds": rounds, "start": start, "end": used()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(float(sys.argv[1]))) + "\n")
