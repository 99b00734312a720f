"""Exact curvature against GraphRicciCurvature on heads of a pretrained model, beside the random maps of `curvature`.

    python -m benchmarks real_heads       # MiniLM on a film review, 65 and 197 tokens; some minutes

Convention grc-0.6, all edges, as many processes as threads, one run. Real heads are sharper than random maps of logit
scale 1, and no two alike: every second layer, two heads of each at 65 tokens, one at 197.
"""

from __future__ import annotations

import warnings

import torch

import geoattn as ga
from benchmarks.curvature import seconds_of_both
from geoattn.graph.shortest_paths import default_threads
from geoattn.studies.ricci.text_models import long_text, text_model

LAYERS = (0, 2, 4)
HEADS = {65: (0, 6), 197: (0,)}


def run() -> dict:
    """A row for each head."""
    warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)
    model, tokenizer = text_model("minilm")
    threads, rows = default_threads(), []
    for n, heads in HEADS.items():
        ids = tokenizer(long_text(0, 4000), truncation=True, max_length=n, return_tensors="pt")["input_ids"]
        with torch.no_grad(), ga.capture(model) as record:
            model(torch.as_tensor(ids))
        for layer in LAYERS:
            for head in heads:
                attention = record[layer].attention(head=head)[:, 0].double().numpy()
                attention = attention / attention.sum(-1, keepdims=True)
                ours, peer, apart = seconds_of_both(attention, threads, 2 if n < 100 else 1)
                spread = float(torch.from_numpy(attention).log().std(-1).mean())
                rows.append(
                    {
                        "n": n, "layer": layer, "head": head, "logit_scale": spread, "geoattn_seconds": ours,
                        "peer_seconds": peer, "ratio": peer / ours, "largest_difference": apart,
                    }
                )  # fmt: skip
                print(
                    f"n={n} layer {layer} head {head}, logits {spread:.2f}: {peer:.3f} s / {1000 * ours:.2f} ms ="
                    f" {peer / ours:.0f}x, apart {apart:.0e}",
                    flush=True,
                )
    return {"threads": threads, "heads": rows}
