"""F.scaled_dot_product_attention seen by its name, in modules whose code can make no other attention.

A function mode sees every function of torch and costs several microseconds for each. Where the code of a module says
that its attention is ``F.scaled_dot_product_attention`` or none, that name alone needs to be watched, while it runs.
"""

from __future__ import annotations

from functools import wraps
from threading import Lock, get_ident
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

from geoattn.capture.frames import Frame
from geoattn.capture.sightings import Sightings

__all__ = ["FusedByName"]

_FUSED = functional.scaled_dot_product_attention
_turn = Lock()  # one name, one watcher


class FusedByName:
    """Puts a watched function in the place of ``F.scaled_dot_product_attention`` while one module runs.

    Not where anything else has a hand in it (another function mode, a function of somebody else under that name,
    another capture), where a softmax is on its way to a product, and not for batch and heads in one axis: then the
    function mode is to see it all. So is the first visit of a module, which tells.
    """

    def __init__(self, sightings: Sightings) -> None:
        self._sightings = sightings
        self._thread = 0

        @wraps(_FUSED)
        def watched(*args: Any, **kwargs: Any) -> Any:
            out = _FUSED(*args, **kwargs)
            frames: list[Frame] = sightings.frames
            if frames and frames[-1].by_name and self._thread == get_ident():
                sightings.fused(args, kwargs, out)
            return out

        self._watched = watched

    @no_type_check
    def begin(self, name: str, args: Any, kwargs: Any, modes: int) -> bool:
        """Watch from now on, in the module of this name; False: it has to be the function mode.

        ``modes`` is the number of function modes of our own. What a module is given must be one tensor, as its code
        says nothing of the functions that it may be given.
        """
        seen = self._sightings
        if name not in seen.probed or name in seen.joined or seen.with_inputs or seen.trails:
            return False
        if len(args) != 1 or kwargs or type(args[0]) is not Tensor or torch._C._len_torch_function_stack() != modes:
            return False
        if functional.scaled_dot_product_attention is not _FUSED or not _turn.acquire(blocking=False):
            return False
        self._thread = get_ident()
        functional.scaled_dot_product_attention = self._watched
        return True

    @no_type_check
    def end(self) -> None:
        """Put things back, if they are not."""
        if functional.scaled_dot_product_attention is self._watched:
            functional.scaled_dot_product_attention = _FUSED
            _turn.release()
