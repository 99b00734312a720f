"""`with capture(model) as record`: the attention that a model really uses."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.call import Call
from geoattn.attention.model_watch import watch_model
from geoattn.attention.module_stack import module_names
from geoattn.attention.record import Record
from geoattn.attention.refusals import refuse_model
from geoattn.attention.selection import Layers, chooser, complain

__all__ = ["Capture", "capture", "chosen_names"]


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

    Capture records every call of F.scaled_dot_product_attention, also inside nn.MultiheadAttention, and every softmax
    whose result is multiplied with values and summed over its axis: Hugging Face (sdpa and eager), timm, vit-pytorch,
    torch.nn and hand-written models. It keeps queries and keys, at 2 d / n of the memory of the maps, and the maps
    themselves where the model makes them (``record.kept``). Gradients flow through ``call.attention()``. It leaves
    nothing at the model after the block.

    ``record.account()`` lists every softmax that ran, and the end of the block warns of attention that is not recorded.
    A capture may stay open over many steps; ``record.clear()`` forgets the steps so far. Later captures use what the
    first one learned of the model, and a compiled model is compiled once more for all of them. Non-reentrant
    checkpointing works. Capture refuses reentrant checkpointing, nn.DataParallel, two threads at once, torch.vmap,
    TorchScript modules, nested tensors, and flash and flex kernels called directly, with the reason. It does not see
    weights that are made without a softmax.

    Examples
    --------
    >>> import torch
    >>> from geoattn.attention import capture
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
    """The context manager that `capture` returns: the capture is open between entry and exit.

    ``on_begin`` is called with the module at which a forward pass begins: the model, or a part called by itself.

    Examples
    --------
    >>> import torch
    >>> from geoattn.attention import Capture
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> with Capture(model) as record, torch.no_grad():
    ...     _ = model(*[torch.rand(1, 5, 8)] * 3, need_weights=False)
    >>> len(record)
    1
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers = None,
        inputs: bool = False,
        reduce: Callable[[Call], Any] | None = None,
        on_begin: Callable[[nn.Module], None] | None = None,
    ) -> None:
        refuse_model(model)
        self._model = model
        self._watch = watch_model(model)
        wanted, deliver = chosen_names(model, layers), self._watch.recorder.deliver
        self._record = Record(layers, wanted, inputs, reduce, deliver, on_begin, self._watch.sound)
        self._entered = False

    def __enter__(self) -> Record:
        if self._entered:
            raise GeoattnError("this capture was entered before; make a new one with capture(model) for each block.")
        self._entered = True
        self._watch.listen(self._model, self._record)
        self._record.open()
        return self._record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.recorder.deliver()
        self._watch.remove(self._record)
        self._record.close()
        if kind is None:
            self._record.warn_of_missing()


def chosen_names(model: nn.Module, layers: Layers) -> frozenset[str] | None:
    """Names of the modules that ``layers`` chooses; None: all of them."""
    if layers is None:
        return None
    chosen = chooser(layers)
    names = [name for name, _ in module_names(model)]
    wanted = frozenset(name for name in names if chosen(name))
    if not wanted:
        raise complain(layers, names, "modules of the model")
    return wanted
