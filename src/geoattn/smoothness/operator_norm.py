"""The spectral norm of a batch of linear maps from several starts, with a certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geoattn.smoothness.lanczos import largest_singular
from geoattn.smoothness.result import Convergence

__all__ = ["Found", "Operator", "operator_norm"]

_ROUNDS = 3  # of fresh starts when no two agree
_SLACK = 2.0  # certificate against the residual of the recurrence, which rounding separates


@runtime_checkable
class Operator(Protocol):
    """b linear maps; vectors are (b, s, N) and (b, s, M), s of them for each map."""

    def apply(self, flat: Float[Tensor, "b s N"]) -> Float[Tensor, "b s M"]: ...

    def adjoint(self, flat: Float[Tensor, "b s M"]) -> Float[Tensor, "b s N"]: ...


@dataclass(frozen=True, eq=False)
class Found:
    """Per map, what `Smoothness` reports."""

    lower: Float[Tensor, " b"]
    residual: Float[Tensor, " b"]
    agreement: Float[Tensor, " b"]
    iterations: Int[Tensor, " b"]
    status: list[Convergence]
    right: Float[Tensor, "b N"]
    left: Float[Tensor, "b M"]
    floor: float = 0.0

    @staticmethod
    def joined(parts: list[Found]) -> Found:
        """One after the other."""
        names = ("lower", "residual", "agreement", "iterations", "right", "left")
        columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        status = [code for part in parts for code in part.status]
        return Found(**columns, status=status, floor=max(part.floor for part in parts))


def operator_norm(
    exact: Operator,
    search: Operator,
    size: tuple[int, int],
    like: Tensor,
    *,
    real: Bool[Tensor, "b N"] | None,
    starts: int,
    tolerance: float,
    steps: int,
    seed: int,
    floor: float = 0.0,
    basis: int = 32,
) -> Found:
    """Search with one operator, certify with the other.

    ``size`` is (b, N), ``like`` a tensor of the dtype and device of the search. All starts of all maps run at once. The
    starts depend on the seed and N alone, so a sample gets the same ones whatever batch it is in. Where no second
    start comes within ten tolerances of the largest value, fresh starts are tried, up to three rounds. What the search
    found and the exact operator does not confirm is improved with the exact one. Residuals and differences below
    ``floor`` (in float64; more in the search if that is coarser) are rounding and count as zero.
    """
    b, n = size
    rough = floor * torch.finfo(like.dtype).eps / torch.finfo(torch.float64).eps  # the floor of the search
    near = 10 * max(tolerance, 8 * torch.finfo(like.dtype).eps)
    values = torch.zeros(b, 0, dtype=torch.float64, device=like.device)
    best = torch.full((b,), -1.0, dtype=torch.float64, device=like.device)
    right = torch.zeros(b, n, dtype=like.dtype, device=like.device)
    iterations = torch.zeros(b, dtype=torch.long, device=like.device)
    agreement = torch.full((b,), float("nan"), dtype=torch.float64, device=like.device)
    agreed = torch.ones(b, dtype=torch.bool, device=like.device)
    for round_ in range(_ROUNDS):
        found = largest_singular(
            lambda v: search.apply(v.view(b, starts, -1)).flatten(0, 1),
            lambda u: search.adjoint(u.view(b, starts, -1)).flatten(0, 1),
            _fresh(b, starts, n, real, like, seed, round_),
            tolerance=tolerance, floor=rough, steps=steps, basis=basis,
        )  # fmt: skip
        value = found.value.view(b, starts)
        top, at = value.max(dim=1)
        better = top > best
        chosen = torch.arange(b, device=like.device) * starts + at
        right = torch.where(better[:, None], found.right[chosen], right)
        best = torch.where(better, top, best)
        iterations = iterations + found.steps.view(b, starts).max(dim=1).values
        values = torch.cat([values, value], dim=1)
        if values.shape[1] > 1:
            two = values.topk(2, dim=1).values
            agreement = torch.where(two[:, 0] > 0, (two[:, 0] - two[:, 1]) / two[:, 0].clamp_min(1e-300), 0.0)
            agreed = two[:, 0] - two[:, 1] <= near * two[:, 0] + rough
        if bool((agreed | ~found.converged.view(b, starts).all(dim=1)).all()):
            break
    sure = _certify(exact, right if exact is search else right.double())
    limit = _SLACK * tolerance * sure.lower + floor
    if exact is not search and bool((sure.residual > limit).any()):
        draw = _fresh(b, 1, n, real, sure.right, seed, _ROUNDS)
        improved = largest_singular(
            lambda v: exact.apply(v[:, None])[:, 0],
            lambda u: exact.adjoint(u[:, None])[:, 0],
            _first_then(sure.right, draw),
            tolerance=tolerance, floor=floor, steps=steps, basis=basis,
        )  # fmt: skip
        iterations = iterations + improved.steps
        sure = _certify(exact, improved.right)
        limit = _SLACK * tolerance * sure.lower + floor
    status = torch.where(sure.residual > limit, 1, torch.where(agreed, 0, 2))
    return Found(
        sure.lower.double(), sure.residual.double(), agreement, iterations,
        [Convergence(k) for k in status.tolist()], sure.right, sure.left, floor,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Certificate:
    lower: Float[Tensor, " b"]
    residual: Float[Tensor, " b"]
    right: Float[Tensor, "b N"]
    left: Float[Tensor, "b M"]


def _certify(exact: Operator, right: Float[Tensor, "b N"]) -> _Certificate:
    """Length and direction of J v, and the residuals of the triplet: two products."""
    length = right.norm(dim=1, keepdim=True)
    right = right / torch.where(length > 0, length, 1.0)
    image = exact.apply(right[:, None])[:, 0]
    lower = image.norm(dim=1)
    left = image / torch.where(lower > 0, lower, 1.0)[:, None]
    back = exact.adjoint(left[:, None])[:, 0]
    residuals = [(back - lower[:, None] * right).norm(dim=1), (image - lower[:, None] * left).norm(dim=1)]
    return _Certificate(lower, torch.maximum(*residuals), right, left)


def _first_then(first: Tensor, draw: Callable[[], Tensor]) -> Callable[[], Float[Tensor, "B N"]]:
    given = [first]
    return lambda: given.pop() if given else draw()


def _fresh(
    b: int, starts: int, n: int, real: Tensor | None, like: Tensor, seed: int, round_: int
) -> Callable[[], Float[Tensor, "B N"]]:
    generator = torch.Generator().manual_seed(seed * _ROUNDS + round_)

    def draw() -> Float[Tensor, "B N"]:
        v = torch.randn(starts, n, generator=generator, dtype=torch.float64).to(like)
        v = v.expand(b, starts, n)
        v = v if real is None else v.masked_fill(~real[:, None], 0.0)
        return v.reshape(b * starts, n)

    return draw
