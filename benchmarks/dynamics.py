"""The drift and a Runge-Kutta step against plain NumPy, growth with n, peak memory, implicit steps, the phase diagram.

    OMP_NUM_THREADS=1 python -m benchmarks dynamics

Times are CPU seconds of one thread, for both sides, as other work on the machine stretches the time on the wall.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from geoattn.dynamics.drift import velocity
from geoattn.dynamics.mobility.minimising_movement import minimising_movement
from geoattn.dynamics.phase import phase_diagram
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import uniform_tokens


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def plain_drift(x: np.ndarray, beta: float) -> np.ndarray:
    """The n x n matrix as anyone would write it."""
    weights = np.exp(beta * x @ x.T)
    y = weights @ x / weights.sum(axis=1, keepdims=True)
    return y - (x * y).sum(axis=1, keepdims=True) * x


def plain_rk4(x: np.ndarray, beta: float, h: float) -> np.ndarray:
    def unit(y: np.ndarray) -> np.ndarray:
        return y / np.linalg.norm(y, axis=1, keepdims=True)

    k1 = plain_drift(x, beta)
    k2 = plain_drift(unit(x + h / 2 * k1), beta)
    k3 = plain_drift(unit(x + h / 2 * k2), beta)
    k4 = plain_drift(unit(x + h * k3), beta)
    return unit(x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))


# dimension, beta, engine; the ratio that the project promises is that of the first
CASES = ((3, 1.0, "auto"), (3, 9.0, "auto"), (2, 1.0, "auto"), (3, 1.0, "fused"), (64, 1.0, "fused"))


def against_numpy(n: int = 10_000, repeats: int = 3, cases: tuple = CASES) -> list[dict]:
    """One drift of SA, float64 on both sides, interleaved, best of several."""
    rows = []
    for d, beta, engine in cases:
        x = uniform_tokens(n, d)
        array = x.numpy()
        ours = theirs = float("inf")
        for _ in range(repeats):
            ours = min(ours, seconds(lambda x=x, b=beta, e=engine: velocity(x, beta=b, engine=e)))
            theirs = min(theirs, seconds(lambda a=array, b=beta: plain_drift(a, b)))
        apart = float(np.abs(velocity(x, beta=beta, engine=engine).numpy() - plain_drift(array, beta)).max())
        row = {
            "what": "drift", "n": n, "d": d, "beta": beta, "engine": engine, "geoattn_seconds": ours,
            "numpy_seconds": theirs, "ratio": theirs / ours, "largest_difference": apart,
        }  # fmt: skip
        print(f"drift d={d} beta={beta} {engine:6}: {theirs:.3f} s / {ours:.4f} s = {theirs / ours:.1f}x", flush=True)
        rows.append(row)
    return rows


def step_against_numpy(n: int = 10_000) -> dict:
    """One whole step of projected Runge-Kutta 4, d = 3: `simulate` with all its records against NumPy."""
    x = uniform_tokens(n, 3)
    ours = theirs = float("inf")
    for _ in range(2):
        ours = min(ours, seconds(lambda: simulate(x, beta=1.0, until=0.1, step=0.1, save=2)))
        theirs = min(theirs, seconds(lambda: plain_rk4(x.numpy(), 1.0, 0.1)))
    apart = np.abs(simulate(x, beta=1.0, until=0.1, step=0.1, save=2).final.numpy() - plain_rk4(x.numpy(), 1.0, 0.1))
    print(f"step: {theirs:.3f} s / {ours:.4f} s = {theirs / ours:.1f}x", flush=True)
    return {
        "what": "rk4 step", "n": n, "d": 3, "geoattn_seconds": ours, "numpy_seconds": theirs, "ratio": theirs / ours,
        "largest_difference": float(apart.max()),
    }  # fmt: skip


def growth() -> list[dict]:
    """Seconds of one drift as n grows."""
    cases = [(3, "auto", 10**k) for k in (3, 4, 5)] + [(2, "auto", 10**k) for k in (3, 4, 5, 6)]
    cases += [(3, "fused", 1000), (3, "fused", 10_000), (3, "fused", 30_000)]
    rows = []
    for d, engine, n in cases:
        x = uniform_tokens(n, d)
        best = min(seconds(lambda x=x, e=engine: velocity(x, beta=4.0, engine=e)) for _ in range(2))
        rows.append({"n": n, "d": d, "engine": engine, "seconds": best})
        print(rows[-1], flush=True)
    return rows


MEMORY = """
import json, sys, time
from geoattn.dynamics.drift import velocity
from geoattn.dynamics.starts import uniform_tokens
n, d, engine = json.loads(sys.argv[1])
x = uniform_tokens(n, d)
start = time.process_time()
velocity(x, beta=4.0, engine=engine)
taken = time.process_time() - start
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
print(json.dumps({"n": n, "d": d, "engine": engine, "seconds": taken, "peak_bytes": peak}))
"""
LARGE = ((100_000, 3, "auto"), (1_000_000, 2, "auto"), (100_000, 3, "fused"))


def memory(cases: tuple = LARGE) -> list[dict]:
    """Peak memory of a fresh process, PyTorch and tokens included, for one drift."""
    rows = []
    for case in cases:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, json.dumps(case)], capture_output=True, text=True, check=True
        )
        rows.append(json.loads(done.stdout))
        print(rows[-1], flush=True)
    return rows


def phase(runs: int = 64) -> dict:
    """The whole diagram: 32 tokens, 20 values of beta, 6 dimensions."""
    start, cpu = time.perf_counter(), time.process_time()
    diagram = phase_diagram(runs=runs)
    taken, cpu = time.perf_counter() - start, time.process_time() - cpu
    table: Any = diagram.to_pandas()
    high = table[table.d == 512]
    print(f"phase diagram: {taken:.0f} s", flush=True)
    return {
        "runs": runs, "seconds": taken, "cpu_seconds": cpu,
        "d = 512": high[["beta", "time", "spread", "curve", "excess"]].to_dict("records"),
        "largest excess, d = 512, beta <= 5": float(high[high.beta <= 5].excess.abs().max()),
    }  # fmt: skip


def movement(n: int = 1000, d: int = 3, steps: int = 100) -> list[dict]:
    """Implicit steps in the metric of attention and in W2; the promise is 2 minutes for each. The energy only rises."""
    x = uniform_tokens(n, d)
    rows = []
    for metric in ("mobility", "W2"):
        found: list[Any] = []
        wall = time.perf_counter()
        cpu = seconds(lambda m=metric, f=found: f.append(minimising_movement(x, metric=m, step=0.05, steps=steps)))
        wall, made = time.perf_counter() - wall, found[0]
        rows.append({
            "n": n, "d": d, "steps": steps, "step": 0.05, "metric": metric, "cpu_seconds": cpu,
            "seconds_on_the_wall": wall, "iterations": sum(made.iterations),
            "largest_rise_of_the_functional": float(made.functional.diff().max()),
            "largest_residual": float(made.residual.max()),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def run() -> dict:
    """Everything."""
    return {
        "threads": torch.get_num_threads(),
        "against_numpy": [*against_numpy(), step_against_numpy()],
        "growth": growth(),
        "memory": memory(),
        "minimising_movement": movement(),
        "phase_diagram": phase(),
    }
