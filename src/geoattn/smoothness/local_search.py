"""The largest singular value of attention on one long sequence, where few tokens carry most of the worst move."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn.smoothness.jacobian import Jacobian
from geoattn.smoothness.lanczos import Triplets, largest_singular
from geoattn.smoothness.local_jacobian import LocalJacobian
from geoattn.smoothness.symmetric_lanczos import largest_eigenvector

__all__ = ["largest_by_tokens"]

_FIRST = 128  # tokens that move freely at first
_SHARE = 16  # at most one token in so many
_CLOSE = 2e-2  # relative residual below which more free tokens cost more than they save
_MOST_STEPS = 60  # in one space
_VANISHED = 1e-3  # of a length: less of a move is left after others
_MOST_VECTORS = 24  # moves of all tokens in a space, beyond which the search goes on as Lanczos


def largest_by_tokens(
    J: Jacobian,
    *,
    seed: int,
    starts: int,
    tolerance: float,
    floor: float,
    steps: int,
    first: int = _FIRST,
) -> Triplets:
    r"""Largest singular triplet of J from several random starts, as `largest_singular`, with fewer products with J.

    Each start has a set S of tokens and orthonormal moves :math:`z_1, z_2, \dots` of the others, with their images. The
    largest triplet of J on the space of all moves of S and of the z is found by Lanczos; its products cost the share
    |S| / n of one with J (`LocalJacobian`). One product with :math:`J^\top` then gives the residual :math:`J^\top u -
    s v` in the space of all moves, on which the search stops. Otherwise S doubles, by the tokens of the
    largest residual, and the residual at the others becomes the next z, at one product with J. Every space
    contains the v before, so s rises, and never above the largest singular value.

    The first S are the tokens with the longest moves :math:`J^\top g`, g normal, of each start its own; starts share
    nothing but the passes. A start that needs more than 24 moves z goes on by `largest_singular` from its v.
    ``steps`` counts the products with :math:`J^\top`; ``floor`` is that of float64.
    """
    floor = floor * torch.finfo(J.dtype).eps / torch.finfo(torch.float64).eps
    generator = torch.Generator().manual_seed(seed)
    g = torch.randn(starts, J.out_size, generator=generator, dtype=torch.float64).to(J.tokens)
    spaces = [_Space(J, pulled, first, generator) for pulled in J.adjoint(g[None])[0]]
    open_ = spaces
    for taken in range(2, min(steps, _MOST_VECTORS) + 1):
        for space in open_:
            space.solve(tolerance)
        for space, back in zip(open_, J.adjoint(torch.stack([s.left for s in open_])[None])[0], strict=True):
            space.judge(back, taken)
        open_ = [s for s in open_ if s.residual > tolerance * s.value + floor]
        if not open_:
            break
        z = torch.stack([space.widen() for space in open_])
        for space, move, image in zip(open_, z, J.apply(z[None])[0], strict=True):
            space.take(move, image)
    found = [space.triplet(space not in open_) for space in spaces]
    for k, space in enumerate(spaces):
        if space in open_ and steps > _MOST_VECTORS:
            found[k] = _everywhere(J, space, tolerance, floor, steps - _MOST_VECTORS)
    return Triplets(*(torch.cat([getattr(t, name) for t in found]) for name in Triplets.__dataclass_fields__))


class _Space:
    """All moves of some tokens, and some moves of all others: the space of one start and the best triplet in it."""

    def __init__(self, J: Jacobian, pulled: Float[Tensor, " N"], first: int, generator: torch.Generator) -> None:
        self.J, self.generator, self.count = J, generator, min(first, J.n)
        self.moves, self.images = pulled.new_zeros(0, J.in_size), pulled.new_zeros(0, J.out_size)
        self.right, self.value, self.residual, self.steps = pulled, 0.0, float("inf"), 1
        self.left = self.images.new_zeros(J.out_size)
        self.free = torch.zeros(J.n, dtype=torch.bool, device=pulled.device)
        self._free(pulled)

    def _free(self, scores: Float[Tensor, " N"]) -> Bool[Tensor, " n"]:
        """Let the tokens of the largest scores move freely, up to ``count`` in all; those that are new."""
        lengths = scores.view(self.J.n, self.J.d).norm(dim=1).masked_fill(self.free, -1.0)
        new = torch.zeros_like(self.free)
        new[lengths.topk(self.count - int(self.free.sum())).indices] = True
        self.free = self.free | new
        self.places = self.free.nonzero()[:, 0]
        self.part = LocalJacobian(self.J, self.places)
        return new

    def solve(self, tolerance: float) -> None:
        """The largest triplet of J on this space; roughly as long as the residual is large."""
        at = len(self.places) * self.J.d

        def apply(flat: Tensor) -> Tensor:
            return self.part.apply(flat[None, None, :at])[0, 0] + flat[at:] @ self.images

        def square(flat: Tensor) -> Tensor:
            u = apply(flat)
            return torch.cat([self.part.adjoint(u[None, None])[0, 0], self.images @ u])

        first = torch.cat([self.right.view(self.J.n, self.J.d)[self.places].flatten(), self.moves @ self.right])
        if float(first.norm()) == 0:
            first = torch.randn(len(first), generator=self.generator, dtype=torch.float64).to(first)
        near = 1e-2 if self.steps == 1 else self.residual / max(self.value, 1e-300) / 30
        best = largest_eigenvector(square, first, tolerance=max(tolerance / 4, near), steps=_MOST_STEPS)
        image = apply(best)
        self.value = float(image.norm())
        self.left = image / image.norm().clamp_min(torch.finfo(image.dtype).tiny)
        self.right = best[at:] @ self.moves
        self.right.view(self.J.n, self.J.d)[self.places] = best[:at].view(-1, self.J.d)

    def judge(self, back: Float[Tensor, " N"], steps: int) -> None:
        """The residual in the space of all moves, from J^T u."""
        self.rest = back - self.value * self.right
        self.residual, self.steps = float(self.rest.norm()), steps

    def widen(self) -> Float[Tensor, " N"]:
        """Free more tokens, unless the search is close; the unit residual at the others."""
        if self.residual > _CLOSE * self.value:
            self.count = max(self.count, min(2 * self.count, self.J.n // _SHARE))
        new = self._free(self.rest)
        if bool(new.any()):
            places = new.nonzero()[:, 0]
            if len(self.moves):
                theirs = self.moves.view(-1, self.J.n, self.J.d)[:, places].flatten(1)
                self.images = self.images - LocalJacobian(self.J, places).apply(theirs[None])[0]
                self.moves.view(-1, self.J.n, self.J.d)[:, places] = 0.0
        z = self.rest.view(self.J.n, self.J.d).masked_fill(self.free[:, None], 0.0).flatten()
        return z / z.norm().clamp_min(torch.finfo(z.dtype).tiny)

    def take(self, move: Float[Tensor, " N"], image: Float[Tensor, " M"]) -> None:
        """One more move, with its image; the moves are made orthonormal, and those that vanish are dropped."""
        moves, images = torch.cat([self.moves, move[None]]), torch.cat([self.images, image[None]])
        lengths = moves.norm(dim=1, keepdim=True)
        kept = lengths[:, 0] > _VANISHED * lengths.max()
        moves, images = (moves / lengths)[kept], (images / lengths)[kept]
        values, turn = torch.linalg.eigh((moves @ moves.T).double())
        turn = (turn / values.clamp_min(_VANISHED**2).sqrt())[:, values > _VANISHED].T.to(moves)
        self.moves, self.images = turn @ moves, turn @ images

    def triplet(self, converged: bool) -> Triplets:
        """The best of it, as a batch of one."""
        kind = {"dtype": torch.float64, "device": self.right.device}
        return Triplets(
            torch.tensor([self.value], **kind), self.left[None], self.right[None],
            torch.tensor([self.residual], **kind), torch.tensor([self.steps], device=self.right.device),
            torch.tensor([converged], device=self.right.device),
        )  # fmt: skip


def _everywhere(J: Jacobian, space: _Space, tolerance: float, floor: float, steps: int) -> Triplets:
    """Lanczos from what a start has found."""
    given = [space.right[None]]

    def fresh() -> Tensor:
        if given:
            return given.pop()
        return torch.randn(1, J.in_size, generator=space.generator, dtype=torch.float64).to(space.right)

    found = largest_singular(
        lambda v: J.apply(v[None])[0], lambda u: J.adjoint(u[None])[0], fresh,
        tolerance=tolerance, floor=floor, steps=steps,
    )  # fmt: skip
    return replace(found, steps=found.steps + space.steps)
