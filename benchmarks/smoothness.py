"""Cost of a local Lipschitz constant: against one forward pass of fused attention, and against the dense Jacobian.

    python -m benchmarks smoothness          # everything, to benchmarks/results/smoothness.json
    python -m benchmarks.smoothness CASE [TOKENS [THREADS]]     # one long case in a process of its own, prints JSON

Times are CPU seconds of one thread, for both, as other work on the machine stretches the time on the wall; the first
case is measured on two threads too, there on the wall, for both. Those of the forward pass are the best of several,
before and after ours. Memory is the peak of a fresh process with PyTorch. The
first case is measured at 16,384 tokens, the others, which differ in how fast the search converges, at 4,096.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.local import local_lipschitz
from geoattn.smoothness.result import Convergence

TOKENS, FEWER, WIDTH = 16_384, 4_096, 64
# name: (standard deviation of the logits, a common component of all tokens, V random)
CASES = {
    "gaussian, logits 2": (2.0, 0.0, False),
    "gaussian, logits 2, V": (2.0, 0.0, True),
    "gaussian, logits 0.2": (0.2, 0.0, True),
    "gaussian, logits 8": (8.0, 0.0, True),
    "common part, logits 2": (2.0, 1.0, True),
}


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds on one thread, seconds on the wall on several."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


def tokens_and_matrices(name: str, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    logits, common, with_v = CASES[name]
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, WIDTH, generator=g) + common * torch.randn(1, WIDTH, generator=g)
    a = torch.randn(WIDTH, WIDTH, generator=g)
    v = torch.randn(WIDTH, WIDTH, generator=g) / WIDTH**0.5
    return x, a * (logits / float((x[:512] @ a.T @ x[:512].T).std())), v if with_v else None


def long(name: str, n: int = TOKENS, repeats: int = 4) -> dict:
    """One causal head: our time and peak memory, and one forward pass of fused attention on the same tokens."""
    x, a, v = tokens_and_matrices(name, n)
    values = x if v is None else x @ v.T

    def forward(dtype: torch.dtype) -> float:
        q, k, w = (t.to(dtype)[None, None] for t in (x @ a.T, x, values))
        return min(
            seconds(lambda: scaled_dot_product_attention(q, k, w, is_causal=True, scale=1.0)) for _ in range(repeats)
        )

    options = {"causal": True, "search": "float32", "tolerance": 1e-3}
    single, double = forward(torch.float32), forward(torch.float64)
    found = []
    wall = time.perf_counter()
    ours = seconds(lambda: found.append(local_lipschitz(x, a, v, **options)))
    wall, found = time.perf_counter() - wall, found[0]
    single, double = min(single, forward(torch.float32)), min(double, forward(torch.float64))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB
    return {
        "case": name, "n": n, "width": WIDTH, "causal": True, "starts": 2, "tolerance": 1e-3, "search": "float32",
        "value": found.value, "relative_residual": found.relative_residual, "agreement": found.agreement,
        "iterations": found.iterations, "status": Convergence(int(found.status)).name,
        "seconds": ours, "seconds_on_the_wall": wall, "sdpa_float32_seconds": single, "sdpa_float64_seconds": double,
        "ratio": ours / single, "ratio_to_float64": ours / double, "peak_gib": peak,
        "threads": torch.get_num_threads(),
    }  # fmt: skip


def against_dense(n: int = 256, d: int = 16, rounds: int = 3) -> dict:
    """The spectral norm from the dense autograd Jacobian and its singular values, and ours."""
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((n, d)), rng.standard_normal((d, d)) / 4
    f = AttentionMap.of(a)
    tensor = torch.as_tensor(x)

    def dense() -> float:
        jacobian = torch.func.jacrev(f, chunk_size=128)(tensor).reshape(n * d, n * d)
        return float(torch.linalg.matrix_norm(jacobian, 2))

    local_lipschitz(x[:8], a)
    ours = min(seconds(lambda: local_lipschitz(x, a)) for _ in range(rounds))
    reference = []
    theirs = seconds(lambda: reference.append(dense()))
    ours = min(ours, *(seconds(lambda: local_lipschitz(x, a)) for _ in range(rounds)))
    value = local_lipschitz(x, a).value
    return {
        "n": n, "d": d, "seconds": ours, "dense_seconds": theirs, "ratio": theirs / ours,
        "relative_difference": abs(value - reference[0]) / reference[0], "threads": torch.get_num_threads(),
    }  # fmt: skip


def rivals(samples: int = 2) -> list[dict]:
    """Bounds beside the constant on the same heads: median and largest ratio to it, and CPU seconds a head.

    ``exact``: `layer_smoothness`. ``printed`` and ``sharper``: the bounds over the ball of the largest token.
    ``softmax norm``: `head_softmax_bound`, at the map at hand, after JaSMin (arXiv 2507.07814). ``weight norms``: the
    sharper bound with the norms of Q, K, V and W alone, which is what sigmaReparam (arXiv 2303.06296) controls.
    """
    import geoattn as ga
    from geoattn.profiles.batches import read_batch
    from geoattn.profiles.model_constants import SmoothnessPass
    from geoattn.smoothness.head_bounds import HeadBounds
    from geoattn.smoothness.layer_smoothness import layer_smoothness
    from geoattn.smoothness.softmax_norms import head_softmax_bound
    from geoattn.studies.ricci.text_models import long_text, text_model

    digits = ga.load_data("digits", split="test", limit=samples).pixels()
    model, tokenizer = text_model("minilm")
    texts = [tokenizer([long_text(k, 300)], return_tensors="pt")["input_ids"] for k in range(samples)]
    batches = {"lvit-digits": (ga.load_model("lvit-digits"), [digits]),
               "minilm": (model, [{"input_ids": t} for t in texts])}  # fmt: skip
    rows = []
    for name, (network, given) in batches.items():
        look = SmoothnessPass(network)
        found: dict[str, list[float]] = {}
        spent: dict[str, float] = {}
        heads = 0
        for batch in given:
            for _, p in look.projections(read_batch(batch, network, 0)):
                b, h = p.q.shape[:2]
                heads += b * h
                kept: list = []
                spent["exact"] = spent.get("exact", 0.0) + seconds(
                    lambda p=p, kept=kept: kept.append(layer_smoothness(p, whole=False))
                )
                exact = kept[0]
                norms = [torch.linalg.matrix_norm(t, 2) for t in (p.query, p.key, p.value)]
                out = 1.0 if p.output is None else torch.linalg.matrix_norm(p.output, 2)
                for s in range(b):
                    for k in range(h):
                        bounds: dict[str, float] = {"printed": exact.bound[s, k], "sharper": exact.sharper[s, k]}
                        at: list = []
                        spent["softmax norm"] = spent.get("softmax norm", 0.0) + seconds(
                            lambda p=p, s=s, k=k, at=at: at.append(head_softmax_bound(p, s, k))
                        )
                        a, v = (
                            float(norms[0][k] * norms[1][k]),
                            float(norms[2][k] * (out if p.output is None else out[k])),
                        )
                        apart = HeadBounds(np.array([[a]]), np.array([[v]]), int(exact.n[s]), float(exact.radius[s]))
                        bounds |= {"softmax norm": at[0], "weight norms": float(np.exp(apart.sharper()))}
                        for kind, value in bounds.items():
                            found.setdefault(kind, []).append(value / exact.heads[s, k])
        for kind, ratios in found.items():
            rows.append({
                "model": name, "heads": heads, "bound": kind, "median_ratio": float(np.median(ratios)),
                "least_ratio": float(np.min(ratios)), "largest_ratio": float(np.max(ratios)),
                "seconds_a_head": spent[kind] / heads if kind in spent else None,
                "seconds_a_head_exact": spent["exact"] / heads,
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def run() -> dict:
    """Each long case in a fresh process, so that its peak memory is its own."""
    rows = []
    torch.set_num_threads(1)
    first, *others = CASES
    for name, n, threads in [(first, TOKENS, 1), (first, TOKENS, 2), *((name, FEWER, 1) for name in others)]:
        command = [sys.executable, "-m", "benchmarks.smoothness", name, str(n), str(threads)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        row = rows[-1]
        print(
            f"{name:24} {row['n']:6} {row['seconds']:7.1f} s = {row['ratio']:5.0f} x SDPA on {threads} thread(s),"
            f" {row['iterations']} steps, residual {row['relative_residual']:.1e}, peak {row['peak_gib']:.2f} GiB",
            flush=True,
        )
    dense = against_dense()
    print(
        f"dense Jacobian n=256 d=16: {dense['dense_seconds']:.1f} s / {dense['seconds']:.3f} s = {dense['ratio']:.0f}x"
    )
    return {"long": rows, "dense": dense, "rivals": rivals()}


if __name__ == "__main__":
    case, *given = sys.argv[1:]
    n, threads = [*map(int, given), *(TOKENS, 1)[len(given) :]]
    torch.set_num_threads(threads)
    print(json.dumps(long(case, n)))
