"""Run a flow of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_choice, read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn._core.progress import guarded
from geoattn.dynamics.attend import ENGINES
from geoattn.dynamics.drift import tangent
from geoattn.dynamics.energy import log_energy_of
from geoattn.dynamics.inputs import read_tokens
from geoattn.dynamics.integrators import (
    INTEGRATORS,
    Integrator,
    Motion,
    Step,
    kick,
    next_step_size,
    runge_kutta,
    to_sphere,
)
from geoattn.dynamics.interaction import Interaction, read_interaction
from geoattn.dynamics.observables import OBSERVABLES
from geoattn.dynamics.recorder import Recorder
from geoattn.dynamics.trajectory import VERSIONS, Trajectory
from geoattn.dynamics.variants import has_energy, push

__all__ = ["METHODS", "NORMS", "simulate"]

METHODS = tuple(INTEGRATORS)
NORMS = ("post", "pre", "none")
_SHORTEST = 1e-13  # of the time run so far: a step below is no step


def simulate(
    tokens: Any,
    *,
    beta: Any = 1.0,
    D: Any = None,
    V: Any = None,
    flow: str = "SA",
    method: str = "rk4",
    causal: bool = False,
    until: Any = "stationary",
    step: Any = None,
    tolerance: Any = 1e-8,
    stationary: Any = 1e-9,
    longest: Any = 1e4,
    most_steps: Any = 1_000_000,
    save: Any = 101,
    keep: str = "all",
    observe: Any = ("polarisation", "nematic"),
    norm: str = "post",
    noise: Any = 0.0,
    seed: Any = 0,
    weights: Any = None,
    shift: Any = 0.0,
    engine: str = "auto",
    normalise: bool = False,
    progress: Callable[[float, float], object] | None = None,
) -> Trajectory:
    r"""Tokens as particles that attend to each other.

    .. math:: \dot x_i = P^\perp_{x_i} \frac{1}{Z_i} \sum_j e^{\beta \langle x_i, D x_j\rangle} V x_j

    ``SA``: :math:`Z_i` is the partition function; ``USA``: the number of (visible) tokens. The other flows
    have other weights.

    Parameters
    ----------
    tokens
        (..., n, d) on the unit sphere; the axes in front are runs side by side. float64 is advised.
    beta, D, V
        Numbers, arrays, arrays with the axes of the batch, or functions of time. None and a number c stand for I and
        c I. V = D climbs the energy of a symmetric D, V = -D descends it; D = Q^T K of an attention head.
    flow
        ``SA``, ``USA``, ``sinkhorn`` (doubly stochastic), ``hardmax`` (the largest logit), ``sigmoid`` (of logit -
        shift), ``L2`` (softmax of :math:`-\tfrac\beta2 \langle x - y, D(x - y)\rangle`), ``linear`` (the logit itself);
        see `VARIANTS` for their metrics and energies.
    method
        ``rk4``: projected Runge-Kutta 4. ``adaptive``: Dormand-Prince 5(4), projected, error of a step below
        ``tolerance``; use it for USA, which is stiff. ``euler``: order 1. ``layer``: not a solver but the transformer
        itself, x <- normalise(x + step * attention(x)), ``step`` 0.1 by default.
    until
        A time, or ``"stationary"``: until no token moves faster than ``stationary`` (relative to its mass for USA), at
        the latest at time ``longest``. A metastable state that moves more slowly than that counts as stationary.
    step
        Of the fixed methods. Default: 0.1 over the norm of V and the root of that of beta D, and over the mass for USA.
    save
        How many times to keep, equally spaced (with ``"stationary"`` spaced by steps), or the times themselves.
    keep
        ``"all"`` kept times, or ``"last"``: observables over time, tokens at the end.
    observe
        Names of `OBSERVABLES` (polarisation, nematic, clusters, histogram), or a dict name -> function of tokens.
    norm
        ``post``: on the sphere. ``pre``: the residual stream y grows, :math:`\dot y = A(y / |y|)`, tokens are its
        directions. ``none``: no normalisation at all, tokens anywhere.
    noise
        sigma of :math:`dX = v\,dt + \sigma\,dB` with Brownian motion of the sphere; not with ``adaptive``.
    shift
        USA in units of time of exp(-shift): weights are exp(logit - shift). With shift = beta nothing overflows.
    normalise
        Divide tokens that are not on the sphere by their norms instead of an error.

    Returns
    -------
    Trajectory
        With the energy, the dissipation identity as certificate (`Trajectory.balance`), and how the run ended.

    Notes
    -----
    O(n^2 d) time a step (O(n) on the circle and the 2-sphere, see `velocity`), O(n d) memory. When D and V are
    multiples of the identity and n < d the tokens are rotated into their span, which the flow never leaves.
    Reference: Geshkovski, Letrouit, Polyanskiy and Rigollet, A mathematical perspective on transformers, 2023.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import simulate
    >>> run = simulate(torch.eye(3, dtype=torch.float64), beta=0.0, until=1.0)
    >>> round((run.final[0] @ run.final[1]).item(), 6)  # (e^2 - 1) / (e^2 + 2)
    0.680479
    >>> run
    Trajectory(SA, rk4, n=3, d=3, runs=1, t=1, 100 steps, end)
    """
    norm = read_choice("norm", norm, NORMS)
    integrator = INTEGRATORS[read_choice("method", method, METHODS)]
    read_choice("engine", engine, ENGINES)
    read_choice("keep", keep, ("all", "last"))
    x = read_tokens(tokens, normalise=normalise, sphere=norm != "none")
    settings = read_interaction(x, beta=beta, D=D, V=V, flow=flow, causal=causal, shift=shift, weights=weights)
    noise = read_number("noise", noise, least=0.0)
    tolerance = read_number("tolerance", tolerance, above=0.0)
    stationary = read_number("stationary", stationary, least=0.0)
    open_ended = isinstance(until, str) and until == "stationary"
    if isinstance(until, str) and not open_ended:
        raise GeoattnError(f"until must be a time or 'stationary'; got {until!r}.")
    end = read_number("longest", longest, above=0.0) if open_ended else read_number("until", until, least=0.0)
    if noise and (integrator.adaptive or open_ended or norm != "post"):
        raise GeoattnError(
            "noise needs norm='post', a fixed step (method 'rk4', 'euler' or 'layer') and a time as until."
        )
    h = read_number("step", step, above=0.0) if step is not None else _default_step(settings, integrator)
    batch, (n, d) = tuple(x.shape[:-2]), x.shape[-2:]
    flat, basis = x.reshape(-1, n, d), None
    if n < d and settings.isotropic and not noise:
        flat, basis = _into_span(flat)
        settings = settings.in_dimension(flat.shape[-1])
    run = _Run(settings, norm, engine, integrator.layer)
    record = Recorder(
        end, save, keep, _read_observables(observe), batch, (n, d), basis,
        open_ended=open_ended, layer=h if integrator.layer else None,
    )  # fmt: skip
    counts, calm = _advance(
        run, flat, integrator, h, tolerance, stationary, open_ended,
        read_count("most_steps", most_steps, least=1), noise,
        torch.Generator(x.device).manual_seed(read_count("seed", seed, least=0)), record, guarded(progress),
    )  # fmt: skip
    given = {"beta": beta, "D": D, "V": V}
    kept = {
        name: torch.as_tensor(np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value), dtype=x.dtype)
        for name, value in {**given, "weights": weights}.items()
        if value is not None and not callable(value)
    }
    status = "end" if not open_ended else "stationary" if bool(calm.all()) else "time limit"
    about = {
        "n": n, "d": d, **{name: _in_words(value) for name, value in given.items()}, "flow": settings.flow,
        "method": method, "norm": norm, "causal": settings.causal, "noise": noise, "shift": settings.shift,
        "step": None if integrator.adaptive else h, "until": "stationary" if open_ended else end,
        "tolerance": tolerance if integrator.adaptive else None, "engine": engine, "dtype": str(x.dtype), **VERSIONS,
    }  # fmt: skip
    return record.trajectory(
        status=status, stationary=calm.reshape(batch), steps=counts[0], rejected=counts[1], log_scale=run.log_scale,
        settings=about, given=kept,
    )  # fmt: skip


class _Run:
    """The right-hand side: tokens and time to motion."""

    def __init__(self, settings: Interaction, norm: str, engine: str, layer: bool) -> None:
        self.settings, self.norm, self.engine = settings, norm, engine
        self.raw = layer or norm != "post"  # the attention output itself, not its tangent part
        factor = settings.gradient_factor if not self.raw and has_energy(settings) else None
        self.factor = None if factor is None else 2 * settings.beta / factor.to(settings.beta)
        self.log_scale = settings.largest_logit() if norm != "none" else 0.0
        self.project = to_sphere if norm == "post" else (lambda y: y)

    def __call__(self, t: float, y: Tensor) -> Motion:
        settings = self.settings.at(t)
        x = to_sphere(y) if self.norm == "pre" else y
        out, log_mass = push(x, settings, engine=self.engine, self_term=self.raw)
        velocity = out if self.raw else tangent(x, out)
        if self.factor is None:
            return Motion(velocity, torch.full_like(log_mass[:, 0], math.nan), log_mass)
        # the metric of SA and L2 has the masses; the energy of sinkhorn, the mean of all masses, is an exponential
        massive = settings.flow in ("SA", "L2", "sinkhorn")
        exponent = (log_mass if massive else settings.shift * (settings.flow == "USA")) - self.log_scale
        moved = velocity.square().sum(-1) * (exponent.exp() if isinstance(exponent, Tensor) else math.exp(exponent))
        w = 1.0 / x.shape[1] if settings.log_weights is None else settings.log_weights.exp()
        return Motion(velocity, self.factor * (w * moved).sum(-1), log_mass)

    def speed(self, y: Tensor, motion: Motion) -> Float[Tensor, " b"]:
        """Largest velocity of a direction of each run, relative to its mass for USA."""
        v = motion.velocity
        if self.raw and self.norm != "none":
            x = to_sphere(y)
            v = tangent(x, v) / y.norm(dim=-1, keepdim=True)
        size = v.norm(dim=-1)
        if self.settings.flow == "USA":
            size = size / (motion.log_mass - self.settings.shift).clamp_min(0.0).exp()
        return size.amax(-1)

    def log_energy(self, t: float, y: Tensor, motion: Motion) -> Float[Tensor, " b"]:
        x = to_sphere(y) if self.norm == "pre" else y
        return log_energy_of(x, self.settings.at(t), motion.log_mass)


def _advance(
    run: _Run, y: Tensor, integrator: Integrator, h: float, tolerance: float, calm_below: float, open_ended: bool,
    most_steps: int, noise: float, draw: torch.Generator, record: Recorder, progress: Any,
) -> tuple[tuple[int, int], Tensor]:  # fmt: skip
    """Steps from 0 to the end, or until all runs are calm; gives (steps, rejected) and which runs are."""
    scheme, adaptive = integrator.scheme, integrator.adaptive
    t, end, steps, rejected = 0.0, record.end, 0, 0
    motion = run(t, y)
    work = 0.0 * motion.rate  # NaN where there is no dissipation identity
    if adaptive:
        h = min(end, tolerance ** (1 / scheme.order) / max(1e-12, float(run.speed(y, motion).max())), 0.1) or h
    moved = True
    while True:
        speed = run.speed(y, motion)
        calm = speed <= calm_below
        finished = t >= end or (open_ended and bool(calm.all()))
        if moved:  # not once more after a step that was rejected
            record.look(t, y, run, motion, work, speed, last=finished)
            if progress is not None:
                progress(t, end)
        moved = False
        if finished:
            return (steps, rejected), calm
        if steps >= most_steps:
            raise GeoattnError(
                f"{most_steps} steps reached only t = {t:.6g} of {end:g}. Use method='adaptive', a longer step, or a"
                " larger most_steps; for USA also shift=."
            )
        # towards rest the error must shrink with the motion, or the tokens never come to rest
        allowed = max(2e-15, tolerance * min(1.0, float(speed.max()))) if open_ended else tolerance
        length, target = record.step_from(t, h, fixed=not adaptive)
        done: Step = runge_kutta(scheme, run, run.project, t, y, work, length, motion)
        jumped = not (adaptive or integrator.layer) and run.norm == "post" and _wild(done, y)
        if jumped or not done.x.isfinite().all():
            if not adaptive:
                raise GeoattnError(
                    f"the step {length:.3g} is too long at t = {t:.6g}: tokens jump. Pass a shorter step= or"
                    " method='adaptive'."
                )
            h, rejected = length / 5, rejected + 1
        elif adaptive and done.error is not None and done.error > allowed:
            h, rejected = next_step_size(length, done.error, allowed, scheme.order), rejected + 1
        else:
            steps, moved = steps + 1, True
            t = target if target is not None else t + length
            y, work = done.x, done.work
            if noise:
                y = kick(y, noise, length, run.project, draw)
            if adaptive and done.error is not None:
                if target is None or length >= h:  # a step cut short to hit a time says nothing about the longer one
                    h = next_step_size(length, done.error, allowed, scheme.order)
            motion = run(t, y) if done.motion is None else done.motion
        if adaptive and h < _SHORTEST * max(t, 1e-3):
            raise GeoattnError(f"the step has shrunk to {h:.1e} at t = {t:.6g}; use a larger tolerance= or float64.")


def _wild(done: Step, y: Tensor) -> bool:
    """A token turned by more than a right angle in one step."""
    return bool(((done.x * y).sum(-1) < 0.0).any())


def _default_step(settings: Interaction, integrator: Integrator) -> float:
    if integrator.layer:
        return 0.1
    logit = settings.largest_logit()
    rate = max(1.0, settings.largest_value()) * math.sqrt(max(1.0, logit))
    if settings.flow == "linear":
        rate *= math.sqrt(max(1.0, logit))
    if settings.flow == "USA":
        rate *= math.exp(min(700.0, max(0.0, logit - settings.shift)))
    return 0.1 / rate


def _into_span(x: Float[Tensor, "b n d"]) -> tuple[Float[Tensor, "b n k"], Float[Tensor, "b k d"]]:
    """Coordinates in an orthonormal basis of a space that holds the tokens."""
    basis = torch.linalg.qr(x.mT).Q.mT
    return to_sphere(x @ basis.mT), basis


def _in_words(value: Any) -> Any:
    """A setting as something that can be written down: numbers and small arrays as they are."""
    if value is None:
        return None
    if callable(value):
        return "function of time"
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=float)
    return array.tolist() if array.size <= 256 else f"array of shape {array.shape}"


def _read_observables(observe: Any) -> dict[str, Callable[[Tensor], Any]]:
    if isinstance(observe, dict):
        wrong = [name for name, function in observe.items() if not callable(function)]
        if wrong:
            raise GeoattnError(f"observe: {wrong[0]!r} must be a function of tokens.")
        return dict(observe)
    names = (observe,) if isinstance(observe, str) else tuple(observe)
    return {name: OBSERVABLES[read_choice("observe", name, tuple(OBSERVABLES))] for name in names}
