"""The result of a simulation: tokens and observables over time, with the certificate of the run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.arguments import read_count
from geoattn._core.display import Viewable
from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.numpy_files import read_npz
from geoattn._version import __version__
from geoattn.dynamics.clusters import cluster_count
from geoattn.dynamics.energy import exp_or_error
from geoattn.dynamics.observables import cosine_histogram

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Status", "Trajectory"]

#: ``end``: until the time asked for. ``stationary``: all runs are. ``time limit``: not stationary by then.
Status = Literal["end", "stationary", "time limit"]


@dataclass(frozen=True, repr=False)
class Trajectory(Viewable):
    """Tokens over time. The first axis of each array is time; the axes of the batch follow.

    ``t`` is time, for the method ``layer`` the step times the number of layers. ``log_energy`` is that of
    `log_interaction_energy`; ``work`` what the dissipation identity says the energy has gained since the start, in
    units of exp(``log_scale``) (NaN unless V is a multiple of a symmetric D); ``start_log_energy`` is at time 0.
    ``speed`` is the largest velocity of a
    token of each run, divided by its mass for USA. ``radius`` (pre-LN) are the norms of the residual stream.
    ``observables`` are those asked for; ``given`` are beta, D, V and weights as they came, if not functions of time.
    With ``basis`` the tokens are kept in their span, (time, ..., n, k).

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> run = ga.simulate(torch.eye(3, dtype=torch.float64), until=1.0, save=5)
    >>> run.tokens.shape, run.energy.shape
    (torch.Size([5, 3, 3]), torch.Size([5]))
    """

    t: Float[Tensor, " time"]
    coordinates: Float[Tensor, "kept *b n k"]
    log_energy: Float[Tensor, " time *b"]
    work: Float[Tensor, " time *b"]
    log_scale: float
    start_log_energy: Float[Tensor, "*b"]
    speed: Float[Tensor, " time *b"]
    status: Status
    stationary: Bool[Tensor, "*b"]
    steps: int
    rejected: int
    basis: Float[Tensor, "*b k d"] | None = None
    radius: Float[Tensor, "kept *b n"] | None = None
    observables: dict[str, Tensor] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Tensor] = field(default_factory=dict)

    @property
    def tokens(self) -> Float[Tensor, "kept *b n d"]:
        """(time, ..., n, d); with ``keep="last"`` the first axis has the last time only."""
        return self.coordinates if self.basis is None else self.coordinates @ self.basis

    @property
    def final(self) -> Float[Tensor, "*b n d"]:
        """The tokens at the last time."""
        last = self.coordinates[-1]
        return last if self.basis is None else last @ self.basis

    @property
    def energy(self) -> Float[Tensor, " time *b"]:
        """The energy of `interaction_energy` over time; an error where it overflows."""
        return exp_or_error(self.log_energy, "log_energy")

    @property
    def balance(self) -> Float[Tensor, " time *b"]:
        r"""How far the energy is from the dissipation identity, relative to the largest energy of the run.

        .. math:: E(t) - E(0) = \int_0^t \frac{2\beta}{c} \sum_i w_i m_i |v_i|^2 \, ds, \qquad V = c D

        with the mass :math:`m_i` for SA and 1 for USA. It measures the error of the integration in time; NaN where
        there is no identity.
        """
        scaled = (self.log_energy - self.log_scale).exp()
        start = (self.start_log_energy - self.log_scale).exp()
        return (scaled - start - self.work).abs() / torch.maximum(scaled.amax(0), start)

    def dissipation(self) -> pd.DataFrame:
        r"""The energy-dissipation balance at each kept time: the flow is a gradient flow when ``defect`` is zero.

        ``functional`` is :math:`\Phi = \frac{c}{2\beta} E` with c D nearest to V (for sinkhorn the log of E).
        ``speed`` is the metric derivative :math:`|\mu'|`, from the velocity; ``slope`` is :math:`|\partial\Phi|`, from
        the derivative of the energy alone; ``rate`` is :math:`\Phi'`. ``defect`` is
        :math:`\frac12|\mu'|^2 + \frac12|\partial\Phi|^2 - \Phi'`, which is never negative and zero exactly where the
        velocity is the gradient. ``gained`` is :math:`\Phi(t) - \Phi(0)`, ``dissipated`` the integral of the two
        squares, by the trapezoidal rule over the kept times.
        The metric is that of the flow: the mobility metric for SA and L2, W2 for the others. With more than one run a
        column ``run`` counts them. O(n^2) memory.
        """
        from geoattn.dynamics.mobility.dissipation import dissipation_table

        if len(self.coordinates) != len(self.t):
            raise GeoattnError("this trajectory kept its last tokens only; run simulate with keep='all'.")
        return dissipation_table(self.tokens, self.t, self.settings, self.given)

    def clusters(self, delta: float = 1e-3) -> Tensor:
        """Number of clusters at each kept time; see `cluster_count`."""
        return cluster_count(self.coordinates, delta)

    def histogram(self, bins: int = 50) -> Float[Tensor, "kept *b bins"]:
        """Shares of cosines at each kept time; see `cosine_histogram`."""
        return cosine_histogram(self.coordinates, bins)

    def to_pandas(self) -> pd.DataFrame:
        """One row per time and run: t, energy, speed and each observable that is one number."""
        import pandas as pd

        times, batch = len(self.t), tuple(self.log_energy.shape[1:])
        places = np.indices((times, *batch)).reshape(1 + len(batch), -1)
        columns: dict[str, Any] = {"t": self.t.cpu().numpy()[places[0]]}
        columns |= {f"run_{k}" if len(batch) > 1 else "run": places[1 + k] for k in range(len(batch))}
        for name in ("log_energy", "work", "speed"):
            columns[name] = getattr(self, name).cpu().numpy().ravel()
        for name, values in self.observables.items():
            if tuple(values.shape) == (times, *batch):
                columns[name] = values.cpu().numpy().ravel()
        return pd.DataFrame(columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a compressed .npz with everything in it; a failed write leaves nothing behind."""
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        arrays |= {f"observable:{name}": values for name, values in self.observables.items()}
        arrays |= {f"given:{name}": values for name, values in self.given.items()}
        header = {name: getattr(self, name) for name in ("log_scale", "status", "steps", "rejected", "settings")}
        packed = {name: value.cpu().numpy() for name, value in arrays.items()}
        write_atomically(path, lambda file: np.savez_compressed(file, header=np.array(json.dumps(header)), **packed))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Read what `save` wrote."""
        try:
            packed = read_npz(path)
            header = json.loads(str(packed.pop("header")))
            arrays = {name: torch.from_numpy(array) for name, array in packed.items()}
            named: dict[str, dict[str, Tensor]] = {"observable": {}, "given": {}}
            for key in [k for k in arrays if ":" in k]:
                kind, name = key.split(":", 1)
                named[kind][name] = arrays.pop(key)
            return cls(**arrays, **header, observables=named["observable"], given=named["given"])
        except Exception as error:  # whatever a file of another kind makes of it
            raise GeoattnError(f"{os.fspath(path)} is not a trajectory written by geoattn ({error}).") from None

    def at(self, index: int) -> Float[Tensor, "*b n d"]:
        """Tokens at one kept time."""
        read_count("index", index, least=-len(self.coordinates))
        last = self.coordinates[index]
        return last if self.basis is None else last @ self.basis

    def __repr__(self) -> str:
        """Short: what ran, how long, how it ended."""
        batch = "x".join(map(str, self.log_energy.shape[1:])) or "1"
        n, d = self.settings.get("n"), self.settings.get("d")
        return (
            f"Trajectory({self.settings.get('flow')}, {self.settings.get('method')}, n={n}, d={d}, runs={batch},"
            f" t={float(self.t[-1]):.6g}, {self.steps} steps, {self.status})"
        )


_ARRAYS = ("t", "coordinates", "log_energy", "work", "speed", "stationary", "start_log_energy", "basis", "radius")
VERSIONS = {"geoattn": __version__, "torch": torch.__version__}
