"""Which maps of a forward pass a regulariser looks at: a draw that depends on seed and step alone."""

from __future__ import annotations

import numpy as np

from geoattn.attention.call import Call
from geoattn.training.distributed import current

__all__ = ["draw_samples"]


def draw_samples(
    call: Call, share: int | None, draw: np.random.Generator, *, least: int = 2
) -> tuple[np.ndarray, int | None, int]:
    """(Samples of this process by number, head, how many samples of all processes) of a call.

    ``share`` samples with at least ``least`` real tokens, of one head; None is all of them, and all heads. In several
    processes the draw is that of one process with the whole batch.
    """
    processes = current()
    good = (call.valid.sum(-1) >= least).cpu().numpy()
    everywhere = [good] if processes is None else processes.gather(good)
    usable = np.flatnonzero(np.concatenate(everywhere))
    if share is None:
        sample, head = usable, None
    else:
        sample = np.sort(draw.permutation(usable)[:share])
        head = int(draw.integers(call.shape[1]))
    total = len(sample)
    if processes is not None:  # those of the sample that lie in this process
        sample = sample - sum(map(len, everywhere[: processes.rank]))
        sample = sample[(sample >= 0) & (sample < len(good))]
    return sample, head, total
