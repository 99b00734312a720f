"""``geoattn doctor``: what is installed, and does it compute what it should."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Any

import typer

from geoattn._version import __version__

__all__ = ["Check", "doctor", "run_checks"]

_REQUIRED = (
    "numpy", "scipy", "torch", "transformers", "safetensors", "pandas", "pyarrow", "matplotlib",
    "scikit-learn", "jaxtyping", "jinja2", "plotly", "typer", "rich",
)  # fmt: skip
_OPTIONAL = ("networkx", "kornia", "datasets", "ray")


@dataclass(frozen=True)
class Check:
    """One thing that was tried."""

    name: str
    passed: bool
    detail: str


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Versions, the kernel, and a self-test on graphs of known curvature. Exit code 1 when one fails."""
    versions = {name: _version(name) for name in (*_REQUIRED, *_OPTIONAL)}
    checks = run_checks(versions)
    about = {
        "geoattn": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **_kernel(),
    }
    healthy = all(check.passed for check in checks)
    if as_json:
        print(
            json.dumps(
                {**about, "versions": versions, "checks": [asdict(c) for c in checks], "healthy": healthy},
                indent=2,
            )
        )
    else:
        _print(about, versions, checks)
    if not healthy:
        raise typer.Exit(1)


def run_checks(versions: dict[str, str | None]) -> list[Check]:
    """Every check, each on its own: one that raises has failed, and the others still run."""
    absent = [name for name in _REQUIRED if versions.get(name) is None]
    checks = [Check("dependencies", not absent, f"missing: {', '.join(absent)}" if absent else "all present")]
    for name, run in _CHECKS.items():
        try:
            error, limit = run()
            checks.append(Check(name, error <= limit, f"largest error {error:.1e}, allowed {limit:.0e}"))
        except Exception as problem:
            checks.append(Check(name, False, f"{type(problem).__name__}: {' '.join(str(problem).split())}"))
    return checks


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kernel() -> dict[str, Any]:
    try:
        from geoattn import _native
        from geoattn.graph.shortest_paths import default_threads

        return {"kernel": _native.instruction_set(), "threads": default_threads()}
    except Exception as error:
        return {"kernel": f"not available: {error}", "threads": None}


def _attention(n: int) -> Any:
    import numpy as np

    weights = np.exp(2.0 * np.random.default_rng(n).standard_normal((2, n, n)))
    return weights / weights.sum(axis=-1, keepdims=True)


def _hop_through_solver() -> tuple[float, float]:
    """On a complete graph with hop lengths the transport solver must find 1 - total variation."""
    import numpy as np

    from geoattn.curvature.complete import total_variation
    from geoattn.curvature.transport import all_edges, solve_pairs
    from geoattn.graph.build import build_graphs
    from geoattn.graph.convention import Convention

    graphs = build_graphs(_attention(24), Convention.of("hop"))
    _, pairs, offsets = all_edges(graphs)
    closed = 1.0 - total_variation(graphs.measures, pairs, offsets)
    return float(np.abs(solve_pairs(graphs, pairs, offsets).kappa - closed).max()), 1e-12


def _complete_graph() -> tuple[float, float]:
    """The Lin-Lu-Yau curvature of the complete graph on n nodes is n / (n - 1)."""
    import warnings

    import numpy as np

    from geoattn._core.errors import DegenerateCurvatureWarning
    from geoattn.curvature.ollivier import ollivier_ricci
    from geoattn.graph.convention import Convention

    n = 9
    rules = Convention(length="hop", measure="uniform", alpha="limit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # equal curvatures are the point here
        kappa = ollivier_ricci(np.ones((n, n)), rules).values()
    return float(np.abs(kappa - n / (n - 1)).max()), 1e-12


def _threads_agree() -> tuple[float, float]:
    """The values must not depend on the number of threads."""
    import numpy as np

    from geoattn.curvature.ollivier import ollivier_ricci
    from geoattn.graph.shortest_paths import default_threads

    one, all_ = (ollivier_ricci(_attention(64), threads=t).values() for t in (1, max(2, default_threads())))
    return float(np.abs(one - all_).max()), 1e-12


def _certificates() -> tuple[float, float]:
    """Relative duality gaps on a general graph."""
    from geoattn.curvature.ollivier import ollivier_ricci

    return ollivier_ricci(_attention(48)).max_gap, 1e-10


def _gradient() -> tuple[float, float]:
    """Against a central difference."""
    import torch

    from geoattn.curvature.loss import curvature_loss

    logits = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    step = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 1e-5
    (slope,) = torch.autograd.grad(curvature_loss(logits.softmax(-1)), logits)
    with torch.no_grad():
        up, down = (curvature_loss((logits + sign * step).softmax(-1)) for sign in (1, -1))
    return abs(float((up - down) / 2 - (slope * step).sum())) / float(step.norm()), 1e-7


def _sample() -> tuple[float, float]:
    """Rows of the embedded sample sum to one."""
    import numpy as np

    from geoattn.datasets.sample import load_sample

    return float(np.abs(load_sample().sum(axis=-1, dtype=np.float64) - 1.0).max()), 1e-5


_CHECKS: dict[str, Callable[[], tuple[float, float]]] = {
    "hop curvature on complete graphs": _hop_through_solver,
    "Lin-Lu-Yau curvature of a complete graph": _complete_graph,
    "one thread and all threads agree": _threads_agree,
    "certificates": _certificates,
    "gradient": _gradient,
    "embedded sample": _sample,
}


def _print(about: dict[str, Any], versions: dict[str, str | None], checks: list[Check]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"geoattn {about['geoattn']}, Python {about['python']}, {about['platform']}")
    console.print(f"kernel {about['kernel']}, {about['threads']} threads, executable {sys.executable}")
    console.print(", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items()))
    for check in checks:
        mark = ("pass", "green") if check.passed else ("FAIL", "bold red")
        console.print(Text.assemble(mark, f"  {check.name}: {check.detail}"))
    console.print("healthy" if all(check.passed for check in checks) else "something is wrong: see FAIL above")
