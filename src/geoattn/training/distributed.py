"""Training in several processes (torch DDP): the rows of each process, and averages over all of them with gradients.

DDP averages the gradients of all processes. What is the mean over a batch in one process is here a sum over the rows of
this process, divided by the rows of all, times the number of processes: then the average is the same gradient.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError

__all__ = ["Processes", "current", "joined", "mean_over_samples", "sharing", "with_all_maps"]


class Processes:
    """The processes of a run; one, unless ``torch.distributed`` was started with more.

    >>> import torch
    >>> from geoattn.training import Processes
    >>> alone = Processes()
    >>> alone.count, alone.rank, alone.share(torch.arange(5)).tolist()
    (1, 0, [0, 1, 2, 3, 4])
    """

    def __init__(self, group: Any = None) -> None:
        self.group = group
        started = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.count = torch.distributed.get_world_size(group) if started else 1
        self.rank = torch.distributed.get_rank(group) if started else 0

    def share(self, rows: Tensor) -> Tensor:
        """The rows of this process: neighbours stay together, and the sizes differ by one at most."""
        if len(rows) < self.count:
            raise GeoattnError(
                f"a batch of {len(rows)} rows cannot be divided among {self.count} processes; use fewer processes, "
                "another batch size, or a number of rows that leaves no such rest."
            )
        return rows.tensor_split(self.count)[self.rank]

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, without a gradient."""
        values = values.detach().clone()
        if self.count > 1:
            torch.distributed.all_reduce(values, group=self.group)
        return values

    def gather(self, value: Any) -> list[Any]:
        """A plain value of each process, in order."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(values, value, group=self.group)
        return values


_current: ContextVar[Processes | None] = ContextVar("geoattn_processes", default=None)


def current() -> Processes | None:
    """The processes that the penalty which is being computed is shared with; None when it is local."""
    return _current.get()


@contextmanager
def sharing(processes: Processes | None) -> Iterator[None]:
    """Averages inside the block are over all of these processes."""
    token = _current.set(processes if processes is not None and processes.count > 1 else None)
    try:
        yield
    finally:
        _current.reset(token)


def mean_over_samples(values: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """The mean of all values that are not NaN, over all processes; NaN when there are none.

    In one process its gradient is that of the mean. In several, the value is that of all, and the average of the
    gradients, which DDP takes, is the gradient.
    """
    processes = current()
    if processes is None:
        mean = values.mean()
        return values.nanmean() if bool(mean.isnan()) else mean
    real = ~values.isnan()
    mine = values[real].sum()
    both = processes.total(torch.stack([mine.double(), real.sum().double()]))
    return _Global.apply(mine, (both[0] / both[1]).to(mine.dtype), float(processes.count / both[1]))


def with_all_maps(maps: Tensor) -> Tensor:
    """Maps (k, n, n), or their valid tokens (k, n), of all processes in order; those of this one keep their gradient.

    The gradient is multiplied by the number of processes: a function of all maps has the same value everywhere, and
    the average of the gradients is its gradient.
    """
    processes = current()
    if processes is None:
        return maps
    parts = [part.to(maps.device) for part in processes.gather(maps.detach().cpu())]
    if maps.requires_grad:
        parts[processes.rank] = _Global.apply(maps, maps.detach(), float(processes.count))
    return torch.cat(parts)


class _Global(torch.autograd.Function):
    """A value of all processes, whose gradient goes to the part of this one, times a factor."""

    @staticmethod
    def forward(ctx: Any, _part: Any, value: Any, factor: float):
        ctx.factor = factor
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Any):
        return upstream[0] * ctx.factor, None, None


@contextmanager
def joined(device: str) -> Iterator[str]:
    """Join the group when torchrun started this process; its device, ``cuda`` being the one of its rank."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()
