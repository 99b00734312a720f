"""The phase diagram: when do tokens cluster, against beta and the dimension."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._core.progress import Progress, in_parts
from geoattn.dynamics.closed_forms import clustering_time
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import uniform_tokens

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PhaseDiagram", "phase_diagram"]

_CHUNK = 50  # steps between looks at which runs are done


@dataclass(frozen=True, repr=False)
class PhaseDiagram(Displayed):
    """Share of pairs of tokens with a cosine of at least 1 - delta, by dimension, beta and time.

    ``probability`` is (dimension, beta, time); ``curve`` the time of `clustering_time` for each beta, the limit of high
    dimension; ``spread`` (dimension, beta) the standard error of `level` over the runs.

    Examples
    --------
    >>> from geoattn.dynamics import phase_diagram
    >>> small = phase_diagram([1.0], [64], n=8, runs=4, until=2.0)
    >>> small.excess().shape
    (1, 1)
    """

    dims: Int[np.ndarray, " dim"]
    betas: Float[np.ndarray, " beta"]
    t: Float[np.ndarray, " time"]
    probability: Float[np.ndarray, "dim beta time"]
    spread: Float[np.ndarray, "dim beta"]
    curve: Float[np.ndarray, " beta"]
    settings: dict[str, Any] = field(default_factory=dict)

    def level(self, share: float = 0.5) -> Float[np.ndarray, "dim beta"]:
        """First time at which that share of pairs is together, by linear interpolation; NaN: not by the end."""
        out = np.full(self.probability.shape[:2], np.nan)
        for place in np.ndindex(out.shape):
            out[place] = _crossing(self.t, self.probability[place], share)
        return out

    def excess(self) -> Float[np.ndarray, "dim beta"]:
        """Level at one half over the theoretical curve, minus one."""
        return self.level() / self.curve - 1

    def to_pandas(self) -> pd.DataFrame:
        """One row per dimension and beta: the time of clustering, the curve, and how far apart they are."""
        import pandas as pd

        place = np.indices(self.probability.shape[:2]).reshape(2, -1)
        return pd.DataFrame(
            {
                "d": self.dims[place[0]],
                "beta": self.betas[place[1]],
                "time": self.level().ravel(),
                "spread": self.spread.ravel(),
                "curve": self.curve[place[1]],
                "excess": self.excess().ravel(),
            }
        )


def phase_diagram(
    betas: Any = None,
    dims: Any = (2, 8, 32, 128, 512, 1024),
    *,
    n: Any = 32,
    runs: Any = 64,
    delta: Any = 1e-3,
    until: Any = 30.0,
    step: Any = 0.1,
    seed: Any = 0,
    progress: Progress | None = None,
) -> PhaseDiagram:
    r"""Clustering of n uniform tokens under SA, V = D = I: P(cosine of two tokens >= 1 - delta) over time.

    ``betas`` default to 20 values from 0.1 to 9. The same starts serve for every beta. Tokens run in their span, at
    most n dimensions, by Runge-Kutta 4; runs that are all together leave the batch. As d grows the level 1/2 tends to
    `clustering_time`; Theorem 6.9 of Geshkovski et al. 2023, figure 3 there with other settings. ``progress`` is called
    with how many dimensions are done, as a fraction, and how many there are.

    Examples
    --------
    >>> from geoattn.dynamics import phase_diagram
    >>> small = phase_diagram([1.0], [64], n=8, runs=4, until=8.0)
    >>> bool(abs(small.excess()[0, 0]) < 0.1)
    True
    """
    values = np.linspace(0.1, 9.0, 20) if betas is None else np.asarray(betas, dtype=float)
    sizes = np.asarray([read_count("dims", d, least=2) for d in np.atleast_1d(np.asarray(dims))])
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise GeoattnError(f"betas must be a row of finite numbers; got shape {values.shape}.")
    n, runs = read_count("n", n, least=2, most=10**18), read_count("runs", runs, least=1)
    delta, step = read_number("delta", delta, above=0.0), read_number("step", step, above=0.0)
    count = max(1, round(read_number("until", until, above=0.0) / step))
    curve = np.array([clustering_time(b, n, delta) for b in values])
    probability = np.zeros((len(sizes), len(values), count + 1))
    spread = np.full((len(sizes), len(values)), np.nan)
    t = step * np.arange(count + 1)
    parts = in_parts(progress, [1] * len(sizes))
    for place, d in enumerate(sizes):
        start = uniform_tokens(n, int(d), runs=runs, seed=read_count("seed", seed, least=0))
        if n < d:
            start = _in_span(start)
        shares = _shares(start, values, count, step, delta, parts[place])
        probability[place] = shares.mean(1)
        for k in range(len(values)):
            each = [_crossing(t, row, 0.5) for row in shares[k]]
            spread[place, k] = np.std(each, ddof=1) / np.sqrt(runs) if runs > 1 else np.nan
    about = {"n": n, "runs": runs, "delta": delta, "step": step, "seed": seed}
    return PhaseDiagram(sizes, values, t, probability, spread, curve, about)


def _shares(
    start: Float[Tensor, "run n k"], betas: np.ndarray, count: int, step: float, delta: float, progress: Progress
) -> Float[np.ndarray, "beta run time"]:
    """Share of near pairs at each step of each run."""
    runs, n, _ = start.shape
    out = np.ones((len(betas) * runs, count + 1))
    x = start.repeat(len(betas), 1, 1)
    beta = torch.from_numpy(np.repeat(betas, runs))
    left = np.arange(len(x))

    def near(tokens: Tensor) -> Tensor:
        together = (tokens @ tokens.mT >= 1 - delta).sum((-2, -1)) - n
        return together.double() / (n * (n - 1))

    firsts = range(0, count, _CHUNK)
    for first, tell in zip(firsts, in_parts(progress, [1] * len(firsts)), strict=True):
        steps = min(_CHUNK, count - first)
        run = simulate(
            x, beta=beta, until=steps * step, step=step, save=steps + 1, keep="last", observe={"near": near},
            progress=tell,
        )  # fmt: skip
        shares = run.observables["near"].numpy().T
        out[left, first : first + steps + 1] = shares
        going = shares[:, -1] < 1.0
        if not going.any():
            break
        left, x, beta = left[going], run.final[torch.from_numpy(going)], beta[torch.from_numpy(going)]
    progress(1, 1)  # the loop may end early
    return out.reshape(len(betas), runs, count + 1)


def _crossing(t: np.ndarray, p: np.ndarray, share: float) -> float:
    above = np.flatnonzero(p >= share)
    if len(above) == 0:
        return float("nan")
    k = int(above[0])
    if k == 0:
        return float(t[0])
    return float(np.interp(share, p[k - 1 : k + 1], t[k - 1 : k + 1]))


def _in_span(x: Float[Tensor, "run n d"]) -> Float[Tensor, "run n n"]:
    basis = torch.linalg.qr(x.mT).Q
    y = x @ basis
    return y / y.norm(dim=-1, keepdim=True)
