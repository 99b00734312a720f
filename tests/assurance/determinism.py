"""What must not depend on threads, backends and instruction sets, as checksums.

    python -m tests.assurance.determinism [KERNEL]

prints JSON. With KERNEL, the folder of another build, its kernel takes the place of the installed one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def use_kernel(folder: Path) -> None:
    """Load the kernel of another build before anything imports the installed one."""
    (kernel,) = folder.glob("_native*.so")
    spec = importlib.util.spec_from_file_location("geoattn._native", kernel)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["geoattn._native"] = module
    spec.loader.exec_module(module)


def digest(*parts: Any) -> str:
    """Checksum of arrays and texts, bit for bit."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return found.hexdigest()


def of_profile(result: Any) -> str:
    """All numbers of a profile; not with what it was made."""
    parts: list[Any] = [result.table.to_csv(index=False)]
    parts += [counts for name in sorted(result.histograms) for counts in result.histograms[name]]
    parts += [result.resampled[key] for key in sorted(result.resampled, key=str)]
    for example in result.examples:
        parts += [*example.edges, *example.weights, *example.kappa, *example.moves]
    return digest(*parts)


def curvature(threads: int) -> str:
    """Dense maps with ties and without, sampled maps, and a sparse graph."""
    import networkx as nx

    import geoattn as ga
    from tests.graphs import draw

    parts: list[Any] = []
    for family in ("softmax-1", "ties", "causal", "wide_rows", "sink", "duplicates"):
        for convention in ("markov", "hop", "grc-0.6"):
            for n, edges in ((9, "all"), (33, "all"), (130, 40)):
                result = ga.ollivier_ricci(draw(family, n, 2, seed=n), convention, edges=edges, threads=threads)
                parts += [result.column(name) for name in ("kappa", "w1", "distance", "gap", "status")]
    graph = ga.ollivier_ricci(nx.karate_club_graph(), "grc-0.6", threads=threads)
    return digest(*parts, graph.kappa, graph.w1, graph.gap)


def profile(threads: int | None = None, **options: Any) -> str:
    """The profile of the embedded model on eight digits."""
    import geoattn as ga

    model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=8)
    made = ga.profile(
        model, data, convention=["markov", "hop"], edges=24, resamplings=50, examples=1, threads=threads, **options
    )
    return of_profile(made)


def study(folder: Path, **options: Any) -> str:
    """Results, table and figure of a study, without where and when."""
    from tests.assurance.fault_jobs import contents, without_times
    from tests.assurance.fault_jobs import study as run

    run(folder, **options)
    return digest(json.dumps({k: str(v) for k, v in contents(folder, without_times).items()}, sort_keys=True))


def main() -> dict[str, Any]:
    import torch

    from geoattn import _native

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return {
        "instruction_set": _native.instruction_set(),
        "curvature": curvature(2),
        "profile": profile(2),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        use_kernel(Path(sys.argv[1]))
    sys.stdout.write(json.dumps(main()) + "\n")
