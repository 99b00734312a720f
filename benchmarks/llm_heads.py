"""All heads of a real language model: SmolLM2-135M on film reviews, 30 layers of 9 heads, 64 edges a head.

    GEOATTN_SMOLLM2=FOLDER_OF_THE_MODEL python -m benchmarks llm_heads      # some minutes

The table holds the seconds for the curvature of all 270 maps, preparation included and the forward pass not, exact
and with tolerance 1e-2; how many exact values lie outside their interval; and three heads at 8,192 tokens with their
memory.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch

import geoattn as ga
from geoattn.graph.shortest_paths import default_threads

EDGES, TOLERANCE = 64, 1e-2
LENGTHS = (512, 1024, 2048)
LONG, LONG_HEADS = 8192, {"flat": (0, 0), "between": (8, 3), "sink": (14, 0)}


def run() -> dict:
    """A row for each length, and one for each long head."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = os.environ["GEOATTN_SMOLLM2"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    reviews = ga.load_data("imdb", split="test", limit=200)
    text = "\n".join(reviews.texts)
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids[:, :LONG]
    rows = [_length(model, ids[:, :n]) for n in LENGTHS]
    return {"threads": default_threads(), "edges": EDGES, "all_heads": rows, "long_heads": _long_heads(model, ids)}


def _length(model: torch.nn.Module, ids: torch.Tensor) -> dict:
    with torch.no_grad(), ga.capture(model) as record:
        model(input_ids=ids)
    exact_seconds = near_seconds = 0.0
    outside = values = bounded = 0
    for call in record:
        maps = call.attention()[0].numpy()
        start = time.perf_counter()
        exact = ga.ollivier_ricci(maps, edges=EDGES)
        middle = time.perf_counter()
        near = ga.ollivier_ricci(maps, edges=EDGES, tolerance=TOLERANCE)
        exact_seconds += middle - start
        near_seconds += time.perf_counter() - middle
        known = np.isfinite(exact.kappa)
        outside += int(np.sum((near.lower > exact.upper)[known] | (near.upper < exact.lower)[known]))
        values += int(known.sum())
        bounded += near.summary()["bounded"]
    row = {
        "n": ids.shape[1], "maps": 9 * len(record), "seconds": exact_seconds, "seconds_tolerance": near_seconds,
        "values": values, "outside": outside, "bounded": bounded,
    }  # fmt: skip
    print(row, flush=True)
    return row


def _long_heads(model: torch.nn.Module, ids: torch.Tensor) -> list[dict]:
    rows = []
    with torch.no_grad(), ga.capture(model, layers=[f"model.layers.{k}" for k, _ in LONG_HEADS.values()]) as record:
        model(input_ids=ids)
    calls = {int(call.name.split("layers.")[1].split(".")[0]): call for call in record}
    for name, (layer, head) in LONG_HEADS.items():
        attention = calls[layer].attention(head=head)[0, 0].numpy()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _memory("VmRSS")
        start = time.perf_counter()
        result = ga.ollivier_ricci(attention, edges=EDGES)
        rows.append({
            "head": name, "layer": layer, "n": len(attention), "seconds": time.perf_counter() - start,
            "peak_mib": _memory("VmHWM") - before, "max_gap": result.max_gap,
        })  # fmt: skip
        print(rows[-1], flush=True)
        del attention
    return rows


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024
