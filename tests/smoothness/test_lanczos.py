from __future__ import annotations

import pytest
import torch

from geoattn.smoothness.lanczos import Triplets, largest_singular

F64 = torch.float64


def solve(J: torch.Tensor, tolerance: float = 1e-6, steps: int = 2000, basis: int = 32, seed: int = 0) -> Triplets:
    g = torch.Generator().manual_seed(seed)
    return largest_singular(
        lambda v: (J @ v[:, :, None])[:, :, 0],
        lambda u: (J.mT @ u[:, :, None])[:, :, 0],
        lambda: torch.randn(len(J), J.shape[2], generator=g, dtype=F64).to(J),
        tolerance=tolerance, steps=steps, basis=basis,
    )  # fmt: skip


def matrices(kind: str) -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    J = torch.randn(3, 120, 90, generator=g, dtype=F64)
    if kind == "tall":
        return torch.randn(3, 200, 2, generator=g, dtype=F64)
    if kind == "wide":
        return torch.randn(3, 2, 200, generator=g, dtype=F64)
    if kind == "one column":
        return torch.randn(3, 7, 1, generator=g, dtype=F64)
    if kind == "low rank":
        return J[:, :, :3] @ J[:, :3]
    if kind == "decaying":
        return torch.diag_embed(10 ** -torch.linspace(0, 12, 100, dtype=F64)).expand(3, 100, 100)
    if kind == "crowded":
        return torch.diag_embed(1 + 1e-5 * torch.rand(3, 300, generator=g, dtype=F64))
    if kind == "identity":
        return 3 * torch.eye(50, dtype=F64).expand(2, 50, 50)
    if kind == "mixed":  # one that closes at once beside one that takes long
        return torch.stack([torch.eye(90, dtype=F64), J[0, :90], torch.zeros(90, 90, dtype=F64)])
    if kind == "nilpotent":
        return torch.diag_embed(torch.ones(2, 60, dtype=F64), offset=1)
    return J


KINDS = ["random", "tall", "wide", "one column", "low rank", "decaying", "crowded", "identity", "mixed", "nilpotent"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("basis", [4, 32])
def test_the_largest_singular_value(kind, basis):
    J = matrices(kind)
    found = solve(J, basis=basis)
    expected = torch.linalg.matrix_norm(J, 2)
    assert found.converged.all()
    torch.testing.assert_close(found.value, expected, rtol=1e-6, atol=1e-12)
    # the relations that it reports hold
    image = (J @ found.right[:, :, None])[:, :, 0]
    back = (J.mT @ found.left[:, :, None])[:, :, 0]
    zero = expected == 0
    torch.testing.assert_close(found.right.norm(dim=1)[~zero], torch.ones(int((~zero).sum()), dtype=F64))
    torch.testing.assert_close(image, found.value[:, None] * found.left, rtol=0, atol=1e-10)
    residual = (back - found.value[:, None] * found.right).norm(dim=1)
    torch.testing.assert_close(residual, found.residual, rtol=1e-3, atol=1e-10)


def test_restarts_cost_little():
    J = matrices("random")
    full, short = solve(J, basis=64), solve(J, basis=8)
    assert bool((short.steps <= 2 * full.steps).all())


def test_never_above_the_norm_and_says_when_it_stopped_early():
    J = matrices("random")
    found = solve(J, steps=3)
    assert not found.converged.any()
    assert bool((found.value <= torch.linalg.matrix_norm(J, 2)).all())
    assert bool((found.residual > 1e-6 * found.value).all())
    assert found.steps.tolist() == [3, 3, 3]


def test_single_precision():
    J = matrices("random")
    found = solve(J.float(), tolerance=1e-4)
    torch.testing.assert_close(found.value, torch.linalg.matrix_norm(J, 2), rtol=1e-5, atol=0)
