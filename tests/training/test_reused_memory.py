"""Memory that steps take again: never what somebody still holds, never more than a step needs."""

from __future__ import annotations

import sys
import threading

import torch

from geoattn.training.reused_memory import ReusedMemory
from geoattn.training.short_variance import _memory, short_variances


def test_what_is_held_is_not_lent_again() -> None:
    memory = ReusedMemory()
    part = memory.take((4, 5)).fill_(1.0)[1]  # a view holds the whole
    for _ in range(3):
        memory.take((4, 5)).fill_(2.0)
    assert (part == 1.0).all()


def test_a_smaller_last_batch_reuses_what_is_there() -> None:
    memory = ReusedMemory()
    place = memory.take((64, 10)).data_ptr()
    assert memory.take((40, 10)).data_ptr() == place


def test_memory_of_another_size_is_let_go() -> None:
    memory = ReusedMemory()
    for size in (10, 1000, 10):
        held = [memory.take((size, size)) for _ in range(3)]
        del held
    assert sum(len(block) for block, _ in memory._blocks) == 3 * 10**2


def test_no_more_is_kept_than_allowed() -> None:
    memory = ReusedMemory(most=1000)
    held = [memory.take((10, 10)).fill_(float(i)) for i in range(5)]
    assert [float(x.mean()) for x in held] == [0, 1, 2, 3, 4]
    assert sum(block.nbytes for block, _ in memory._blocks) == 800


def test_threads_never_share_a_block() -> None:
    memory, wrong = ReusedMemory(), []

    def work(mark: float) -> None:
        for _ in range(1500):
            mine = [memory.take((50,)).fill_(mark) for _ in range(4)]
            wrong.extend(x for x in mine if not bool((x == mark).all()))

    crew = [threading.Thread(target=work, args=(float(mark),)) for mark in range(8)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns at every step
    try:
        for member in crew:
            member.start()
        for member in crew:
            member.join()
    finally:
        sys.setswitchinterval(usual)
    assert not wrong


def test_gradients_that_a_hook_keeps_stay_as_they_were() -> None:
    q, k = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(2))
    kept: list[torch.Tensor] = []
    q.register_hook(lambda grad: kept.append(grad))
    copies = []
    for scale in (0.1, 0.2, 0.3):
        short_variances([q], [k], scale).sum().backward()
        copies.append(kept[-1].clone())
    assert len({float(copy.abs().sum()) for copy in copies}) == 3
    assert all(torch.equal(one, two) for one, two in zip(kept, copies, strict=True))


def test_other_gradients_are_added_in_place() -> None:
    """Else each sum would be a new tensor, and the memory that is kept would spare nothing."""
    q, k = (torch.randn(4, 2, 17, 64, requires_grad=True) * 1 for _ in range(2))
    places: list[int] = []
    q.register_hook(lambda grad: places.append(grad.data_ptr()))
    for _ in range(3):
        of_model = q.square().sum()  # before the penalty, as in training: the gradient of the penalty comes first
        (of_model + short_variances([q], [k], 0.1).sum()).backward(retain_graph=True)
    assert set(places) <= {block.ctypes.data for block, _ in _memory._blocks}
    assert len(places) == 3
