"""What curvature costs at any size: measured points, a model fitted on some of them, its error on the others.

python -m benchmarks scale      # about four minutes; what results/scale.json holds already is not measured again

CPU seconds of one thread for one map of n tokens with m sampled edges are prepare(n) + m edge(n), each a n^2 + b n^3.
Up to 257 tokens the kernel works on cuts as sets of bits, from 1,024 on it reads lists of short edges instead of whole
rows: an edge has coefficients of its own in each of the three ranges.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"

# tokens: (maps, fewer edges, more edges); the held-out ones are not used in the fit
FITTED = {
    65: (8, 1, 512), 197: (4, 1, 512), 257: (4, 1, 512), 300: (2, 1, 512), 512: (1, 1, 512), 768: (1, 1, 256),
    1024: (1, 1, 192), 2048: (1, 1, 64),
}  # fmt: skip
HELD_OUT = {
    129: (8, 1, 512), 225: (4, 1, 512), 384: (1, 1, 512), 640: (1, 1, 256), 1536: (1, 1, 96), 4096: (1, 1, 64),
}  # fmt: skip
EDGES = ("short edge", "medium edge", "long edge")
MEMORY = (512, 1024, 2048)
SHORT = 257  # tokens up to which the kernel works on cuts
LONG = 1024  # tokens from which it reads lists of short edges


def measure(n: int, maps: int, few: int, many: int) -> dict[str, float]:
    """CPU seconds of one thread: what a map costs before its first edge, and what an edge costs."""
    import geoattn as ga
    from benchmarks.attention import softmax_attention

    ga.ollivier_ricci(softmax_attention(1, 16), threads=1)  # loads what is loaded once
    attention = softmax_attention(maps, n)
    seconds = [float("inf"), float("inf")]
    for _ in range(10 if n < 512 else 2):  # the best of some: other work on the machine only adds time
        for k, edges in enumerate((few, many)):
            start = time.process_time()
            ga.ollivier_ricci(attention, edges=edges, threads=1)
            seconds[k] = min(seconds[k], (time.process_time() - start) / maps)
    edge = (seconds[1] - seconds[0]) / (many - few)
    return {"n": n, "edges": many, "seconds": seconds[1], "edge": edge, "prepare": max(seconds[0] - few * edge, 0.0)}


def memory(n: int) -> dict[str, float]:
    """Peak memory above the map itself and the libraries, in a process of its own."""
    code = (
        "import resource, geoattn as ga\nfrom benchmarks.attention import softmax_attention\n"
        "ga.ollivier_ricci(softmax_attention(1, 16), edges=1, threads=1)\n"
        f"a = softmax_attention(1, {n})[0].copy()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "now = int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize() // 1024\n"
        "ga.ollivier_ricci(a, edges=1, threads=1)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, before, now)\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    peak, before, now = map(int, done.stdout.split())
    return {"n": n, "mib": (max(peak, now) - now) / 1024, "making_the_map_mib": (before - now) / 1024}


def spread_of_values() -> list[dict[str, Any]]:
    """Standard deviation of curvature over the edges of one map, over real heads, by model and preset."""
    import torch

    import geoattn as ga
    from geoattn.studies.ricci.text_models import long_text, text_model

    found = []
    digits = ga.load_data("digits", split="test", limit=4)
    for name in ("lvit-digits", "minilm", "stories260K"):
        if name == "lvit-digits":
            model, batch = ga.load_model(name), digits.pixels()
        else:
            model, tokenizer = text_model(name)
            ids = tokenizer(long_text(0, 2000), truncation=True, max_length=129)["input_ids"]
            batch = torch.as_tensor(ids).reshape(1, -1)[:, :129]
        with torch.no_grad(), ga.capture(model) as record:
            model(batch)
        for preset in ("markov", "hop", "grc-0.6", "grc-0.5"):
            stds = []
            for call in record:
                attention = call.attention(sample=slice(0, 2)).double().numpy()
                for one in attention.reshape(-1, *attention.shape[-2:])[:6]:
                    result = ga.ollivier_ricci(one, preset, edges=150, threads=1)
                    stds.append(float(result.values().std()))
            row = {"model": name, "tokens": int(attention.shape[-1]), "convention": preset, "heads": len(stds)}
            found.append(row | {"median": float(np.median(stds)), "largest": max(stds)})
    return found


def whole(tokens: int, edges: int) -> dict[str, Any]:
    """A profile of MiniLM (6 layers, 12 heads) on one text: real maps, and all that a profile does beside them."""
    import torch

    import geoattn as ga
    from geoattn.studies.ricci.text_models import long_text, text_model

    model, tokenizer = text_model("minilm")
    ids = tokenizer(long_text(0, 8000), truncation=True, max_length=tokens, return_tensors="pt")["input_ids"]
    start = time.process_time()
    made = ga.profile(model, [torch.as_tensor(ids)], edges=edges, lenses=["curvature"], examples=0, threads=1)
    seconds = time.process_time() - start
    return {
        "model": "minilm",
        "tokens": int(ids.shape[1]),
        "edges": edges,
        "maps": made.settings["maps"],
        "seconds": seconds,
    }


def fit(points: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Coefficients of n^2 and n^3 for each part: non-negative least squares of relative errors."""
    from scipy.optimize import nnls

    answer = {}
    for part, of in (*((name, "edge") for name in EDGES), ("prepare", "prepare")):
        used = [p for p in points if part == "prepare" or _edge(p["n"]) == part]
        n, seconds = (np.array([p[key] for p in used], dtype=np.float64) for key in ("n", of))
        square, cube = nnls(np.stack([n**2, n**3], axis=1) / seconds[:, None], np.ones(len(n)))[0]
        answer[part] = {"square": float(square), "cube": float(cube)}
    return answer


def _edge(n: float) -> str:
    return EDGES[int(n > SHORT) + int(n >= LONG)]


def predict(model: dict[str, dict[str, float]], n: float, edges: float) -> float:
    """CPU seconds of one map."""
    edge, prepare = (model[part]["square"] * n**2 + model[part]["cube"] * n**3 for part in (_edge(n), "prepare"))
    return prepare + edges * edge


def run() -> dict[str, Any]:
    """Measure what is not there yet, then fit."""
    path = RESULTS / "scale.json"
    kept = json.loads(path.read_text()) if path.is_file() else {}
    points = {int(p["n"]): p for p in kept.get("points", [])}
    memories = {int(p["n"]): p for p in kept.get("memory", [])}
    spread = kept.get("spread", [])
    parts = os.environ.get("SCALE_PARTS", "points,memory,spread,profiles").split(",")  # some of them, to save time
    for n, settings in sorted({**FITTED, **HELD_OUT}.items()):
        if n not in points and "points" in parts:
            points[n] = measure(n, *settings)
            print(points[n], flush=True)
    for n in MEMORY:
        if n not in memories and "memory" in parts:
            memories[n] = memory(n)
            print(memories[n], flush=True)
    if not spread and "spread" in parts:
        spread = spread_of_values()
    profiles = kept.get("profiles", [])
    if not profiles and "profiles" in parts:
        profiles = [whole(129, 64), whole(257, 32)]
    figures: dict[str, Any] = {
        "points": [points[n] for n in sorted(points)],
        "memory": [memories[n] for n in sorted(memories)],
        "spread": spread,
        "profiles": profiles,
    }
    if all(n in points for n in FITTED):
        model = fit([points[n] for n in FITTED])
        figures["model"] = model
        figures["held_out"] = [
            {"n": n, "measured": p["seconds"], "predicted": predict(model, n, p["edges"])}
            for n, p in sorted(points.items())
            if n in HELD_OUT
        ]
        for row in profiles:
            row["predicted"] = row["maps"] * predict(model, row["tokens"], row["edges"])
            row["ratio"] = row["predicted"] / row["seconds"]
        for row in figures["held_out"]:
            row["ratio"] = row["predicted"] / row["measured"]
    return figures
