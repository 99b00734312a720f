"""`with capture(model) as record`: the attention that a model really uses."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch import nn

from geoattn.capture.by_name import FusedByName
from geoattn.capture.call import Call
from geoattn.capture.frames import ModuleStack, module_names
from geoattn.capture.mode import AttentionMode
from geoattn.capture.record import Record
from geoattn.capture.refusals import refuse_model
from geoattn.capture.selection import Layers, chooser, complain
from geoattn.errors import GeoattnError

__all__ = ["Capture", "capture"]


def capture(
    model: nn.Module,
    layers: Layers = None,
    inputs: bool = False,
    reduce: Callable[[Call], Any] | None = None,
) -> "Capture":
    """Record the attention of every forward pass of ``model`` inside the block, in forward order.

    ``layers`` chooses modules: a pattern in the style of file names ("encoder.layer.3", "*.attn", with all
    inside), a list of them, or a function of the name. ``inputs=True`` also keeps the token inputs X of the
    attention module and Q, K, V. ``reduce`` is called with each `Call` as it happens, without gradients; only
    what it returns is kept, as ``call.reduced``, so that memory does not grow with the maps of a model that
    builds them itself.

    Seen are F.scaled_dot_product_attention, nn.MultiheadAttention and all that is built on them, and every
    softmax over the last axis whose result is multiplied with values: Hugging Face (sdpa and eager), timm,
    vit-pytorch, torch.nn and hand-written models. Queries and keys are kept, at 2 d / n of the memory of the
    maps; gradients flow through ``call.attention()``. Nothing stays behind after the block.

    A capture may stay open over many steps: with torch.compile it must, as each capture entered anew compiles
    anew; ``record.clear()`` forgets the steps so far. Non-reentrant checkpointing works. Refused with the
    reason: reentrant checkpointing, nn.DataParallel, two threads at once, torch.vmap, TorchScript, nested tensors,
    flash and flex kernels called directly. Not seen: weights that are made without a softmax, or summed up without
    a product.

    Examples
    --------
    >>> import torch
    >>> from geoattn.capture import capture
    >>> layer = torch.nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).eval()
    >>> with capture(model) as record, torch.no_grad():
    ...     _ = model(torch.randn(3, 5, 8))
    >>> record.names
    ['layers.0.self_attn', 'layers.1.self_attn']
    >>> record[0].kind, record[0].attention().shape, record[0].valid.shape
    ('self', torch.Size([3, 2, 5, 5]), torch.Size([3, 5]))
    >>> with capture(model, layers="layers.1", reduce=lambda call: float(call.attention().sum())) as record:
    ...     _ = model(torch.randn(3, 5, 8))
    >>> [(call.name, round(call.reduced)) for call in record]
    [('layers.1.self_attn', 30)]
    """
    return Capture(model, layers, inputs, reduce)


class Capture:
    """The block itself: hooks and the function mode are on between entry and exit, whatever happens.

    ``early`` is given queries, keys and scale of each call that is noted in haste, as soon as it has run; the `Glimpse`
    keeps what it returns.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers = None,
        inputs: bool = False,
        reduce: Callable[[Call], Any] | None = None,
        early: Callable[[Any, Any, float], Any] | None = None,
    ) -> None:
        refuse_model(model)
        chosen = chooser(layers)
        names = [name for name, _ in module_names(model)]
        if not any(chosen(name) for name in names):
            raise complain(layers, names, "modules of the model")
        self._record = Record(layers, inputs, reduce, early)
        sightings = self._record.sightings
        mode = AttentionMode(sightings)
        self._stack = ModuleStack(
            model, sightings.frames, chosen, mode, FusedByName(sightings), sightings.is_following, sightings.leave
        )
        self._entered = False

    def __enter__(self) -> Record:
        if self._entered:
            raise GeoattnError("this capture was entered before; make a new one with capture(model) for each block.")
        self._entered = True
        self._stack.attach()
        self._record.open()
        return self._record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.detach()
        self._record.close()
