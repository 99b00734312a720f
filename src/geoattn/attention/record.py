"""The record of an open or closed capture: a sequence of attention calls in forward order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

import torch

from geoattn._core.display import Viewable
from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn.attention.account import SoftmaxUse
from geoattn.attention.call import Call
from geoattn.attention.check import CaptureCheck, CaptureWarning, check_call
from geoattn.attention.masks import Mask, shared_mask
from geoattn.attention.raw_call import RawCall, read_call, reads_a_cache, shape_of, versions_of
from geoattn.attention.selection import Layers, chooser, complain, name_some
from geoattn.attention.stored import storage_bytes

__all__ = ["Record"]


class Record(Viewable, Sequence):  # not Sequence[Call]: type checkers at run time would read it when it is still empty
    """Attention calls in forward order; what `capture` gives.

    Readable inside the block after a forward pass, and after the block. To read a record in which no
    attention ran is an error. Its memory is that of queries and keys: 2 d / n of the maps (3 % for n = 4,096
    and d = 64).

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.rand(1, 5, 8, generator=torch.Generator().manual_seed(0))
    >>> with ga.capture(model) as record, torch.no_grad():
    ...     _ = model(x, x, x, need_weights=False)
    >>> record.names, len(record), record.nbytes
    (['MultiheadAttention'], 1, 480)
    """

    def __init__(
        self,
        layers: Layers,
        wanted: frozenset[str] | None,
        inputs: bool,
        reduce: Callable[[Call], Any] | None,
        deliver: Callable[[], None],
        on_begin: Callable[[Any], None] | None,
        sound: set[str],
    ) -> None:
        self.wanted = wanted
        self.inputs = inputs
        self._calls: list[Call] = []
        self._waiting: list[tuple[RawCall, tuple[int | None, ...]]] = []
        self._layers = layers
        self._reduce = reduce
        self._deliver = deliver  # what waits in compiled code
        self._on_begin = on_begin
        self._elsewhere: dict[str, None] = {}
        self._account: list[SoftmaxUse] = []
        self._missing: dict[SoftmaxUse, None] = {}
        self._began = False
        self._visits: dict[str, int] = {}
        self._checked: set[str] = set(sound)
        self._sound = sound  # routes that an earlier check of this model found nothing on
        self._last_self: Call | None = None
        self._state = "not entered"

    @overload
    def __getitem__(self, index: int | str) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> list[Call]: ...
    def __getitem__(self, index: int | str | slice) -> Call | list[Call]:
        """A call by its place or by the name of its module; calls by a slice."""
        return self._named(index) if isinstance(index, str) else self._read()[index]

    def _named(self, name: str) -> Call:
        calls = [call for call in self._read() if call.name == name]
        if not calls:
            inside = [one for one in self.names if one.startswith(f"{name}.")]  # a module around it was named
            near = f" Did you mean {inside[0]!r}?" if inside else did_you_mean(name, self.names)
            raise GeoattnError(f"no attention of {name!r} is in this record: it has {name_some(self.names)}.{near}")
        if len(calls) > 1:
            raise GeoattnError(
                f"{name!r} ran {len(calls)} times in this record; record.select({name!r}) gives them all."
            )
        return calls[0]

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[Call]:
        return iter(self._read())

    def __bool__(self) -> bool:
        self._take()
        return bool(self._calls)

    def __repr__(self) -> str:
        return f"Record({len(self._calls) + len(self._waiting)} calls, {self._state})"

    def facts(self) -> dict[str, Any]:
        """What the record shows of itself; reads nothing."""
        calls = len(self._calls) + len(self._waiting)
        names = list(dict.fromkeys([c.name for c in self._calls] + [raw.context.name for raw, _ in self._waiting]))
        return {"state": self._state, "calls": calls, "modules": len(names), "first": names[0] if names else None}

    @property
    def names(self) -> list[str]:
        """Names of the modules in which attention ran, each once."""
        return list(dict.fromkeys(call.name for call in self._read()))

    def select(self, layers: Layers) -> list[Call]:
        """The calls of some layers: patterns as for `capture`."""
        chosen = chooser(layers)
        calls = [call for call in self._read() if chosen(call.name)]
        if not calls:
            raise complain(layers, self.names, "modules in this record")
        return calls

    def check(self) -> list[CaptureCheck]:
        """Self-check of every call: map against the model's own output, and sums of rows.

        The first call of each route, and the first one with a sink, is checked automatically in the first
        capture of a model, and warns with `CaptureWarning`.
        """
        with torch._C.DisableTorchFunction():
            return [check_call(call) for call in self._read() if call.stored is not None]

    def account(self) -> list[SoftmaxUse]:
        """Every softmax that ran inside the model since the last `clear`, in the order in which its use became known.

        ``use`` is ``captured`` or ``fused`` for a call of this record, ``not chosen`` for attention of other layers,
        or what else it is: ``router``, ``classifier``, ``pooling``, ``gate``, ``linear attention``,
        ``channel attention``, ``prototypes``, ``mixed`` (into another map that is recorded). Attention that the record
        lacks is ``block-sparse``, ``factorised``, ``deformable``, ``hidden`` (inside TorchScript or a kernel of another
        library) or ``unexplained``; the end of the block warns of it with `CaptureWarning`.

        Examples
        --------
        >>> import torch, geoattn
        >>> model = geoattn.models.LViT()
        >>> with geoattn.capture(model) as record, torch.no_grad():
        ...     _ = model(torch.rand(1, 1, 28, 28))
        >>> {(one.name, one.use) for one in record.account()[:2]} == {
        ...     ("transformer.layers.0.0", "fused"), ("transformer.layers.1.0", "fused")}
        True
        """
        self._take()
        return list(self._account)

    def warn_of_missing(self) -> None:
        """Warn of attention that ran and is not in the record."""
        for kind in dict.fromkeys(use.use for use in self._missing):
            uses = [use for use in self._missing if use.use == kind]
            shape, names = " x ".join(map(str, uses[0].shape)), name_some([use.name for use in uses], limit=4)
            text = (
                f"a softmax of shape {shape} over axis {uses[0].axis} in {names} is not in the record:"
                f" {uses[0].meaning}. Record other layers with layers=, or write this one with"
                " scaled_dot_product_attention; record.account() lists all softmaxes."
            )
            warnings.warn(text, CaptureWarning, stacklevel=4)
        self._missing.clear()

    def clear(self) -> None:
        """Forget the calls so far: for a capture that stays open over many steps."""
        self._deliver()
        self._waiting.clear()
        self._calls.clear()
        self._visits.clear()
        self._account.clear()
        self._last_self = None

    @property
    def nbytes(self) -> int:
        """Memory behind all that is kept, each storage counted once."""
        return storage_bytes([t for call in self._read() if call.stored is not None for t in call.stored.tensors()])

    @property
    def kept(self) -> str:
        """What the record keeps, and why whole maps where it does.

        Examples
        --------
        >>> import torch, geoattn as ga
        >>> model = ga.models.LViT()
        >>> with ga.capture(model) as record, torch.no_grad():
        ...     _ = model(torch.rand(1, 1, 28, 28))
        >>> record.kept.split(" (")[0]
        '8 calls keep queries and keys'
        """
        kept: dict[bool, list[Call]] = {False: [], True: []}
        for call in self._read():
            if call.stored is not None:
                kept[call.route == "softmax"].append(call)
        said = []
        for calls, what in ((kept[False], "queries and keys"), (kept[True], "whole maps")):
            if calls:
                size = (
                    storage_bytes([tensor for call in calls if call.stored for tensor in call.stored.tensors()]) / 1e6
                )
                said.append(f"{len(calls)} calls keep {what} ({size:.1f} MB)")
        if kept[True]:
            said.append(
                "the model computes these maps itself, and only it knows which masks, biases and mixtures are in them;"
                " fused attention (Hugging Face: model.set_attn_implementation('sdpa')) keeps 2 d / n of that"
            )
        return "; ".join(said) or "nothing: the calls were reduced"

    def open(self) -> None:
        """Begin the block."""
        self._state = "open"

    def close(self) -> None:
        """End the block: take all calls that wait. Small maps behind a cache are read when asked for."""
        self._deliver()
        self._state = "closed"
        long = [i for i, (item, _) in enumerate(self._waiting) if item.rows is None and item.cached is None]
        self._read_waiting(long[-1] + 1 if long else 0)
        for item, _ in self._waiting:
            if item.cached is not None:
                item.cached[1].keep_first_head()
        self._make_masks_small()

    def _make_masks_small(self) -> None:
        """Masks that hide columns or the future need little memory; layers share theirs."""
        small: dict[Any, Mask] = {}
        for i, call in enumerate(self._calls):
            if call.stored is not None and call.stored.mask.entries is not None:
                self._calls[i] = replace(call, stored=call.stored.with_mask(lambda mask: shared_mask(mask, small)))

    def begin(self, module: Any) -> None:
        """A forward pass begins."""
        self._began = True
        if self._on_begin is not None:
            self._on_begin(module)

    def end(self, module: Any, output: Any) -> None:
        """A forward pass has ended."""

    def receive(self, item: RawCall | SoftmaxUse | str | GeoattnError) -> None:
        """Take a call that was seen. It is read when the record is read, or at once where that would be too late."""
        if isinstance(item, GeoattnError):
            raise item
        if isinstance(item, str):
            self._elsewhere[item] = None
            return
        if isinstance(item, SoftmaxUse):
            self._account.append(item)
            if item.is_missing and (self.wanted is None or item.name in self.wanted):
                self._missing[item] = None
                if item.in_parts:
                    self._drop_parts(item)
            return
        if self.wanted is not None and item.context.name not in self.wanted:
            self._elsewhere[item.context.name] = None
            return
        if not self.inputs and item.inputs:
            item = _without_inputs(item)
        if item.weights is None:
            self._account.append(SoftmaxUse(item.context.name, shape_of(item), -1, "fused"))
        self._waiting.append((item, versions_of(item)))
        route = "sdpa" if item.weights is None else "softmax"
        first = any(what not in self._checked for what in _worth_a_check(route, item.sink, item.random))
        if self._reduce is not None or first or reads_a_cache(item):
            self._read_waiting()

    def _drop_parts(self, use: SoftmaxUse) -> None:
        """Forget maps of a module that are parts of attention which is not recorded."""
        self._read_waiting()
        kept = [call for call in self._calls if call.name != use.name]
        if len(kept) < len(self._calls):
            self._calls = [replace(call, index=i) for i, call in enumerate(kept)]
            self._account = [
                one._replace(use=use.use) if one.name == use.name and one.use in ("captured", "fused") else one
                for one in self._account
            ]

    def _read_waiting(self, count: int | None = None) -> None:
        waiting, self._waiting = self._waiting[:count], [] if count is None else self._waiting[count:]
        with torch._C.DisableTorchFunction():  # an open capture must not see this
            for item, versions in waiting:
                self._read_one(item, versions)

    def _read_one(self, raw: RawCall, versions: tuple[int | None, ...]) -> None:
        name = raw.context.name
        visit = self._visits[name] = self._visits.get(name, -1) + (raw.part == 0 or name not in self._visits)
        call = read_call(raw, versions, len(self._calls), visit, self._last_self)
        if call.kind == "self":
            self._last_self = call
        worth = _worth_a_check(call.route, call.sink, raw.random)
        if not self._checked.issuperset(worth):
            self._checked.update(worth)
            result = check_call(call)
            if result.ok and not math.isnan(result.error):
                self._sound.add(call.route)
            elif not result.ok:
                text = f"attention of {call.name!r}: {'; '.join(result.findings)}."
                warnings.warn(text, CaptureWarning, stacklevel=2)
        if self._reduce is not None:
            with torch.no_grad():
                call = replace(call, reduced=self._reduce(call), stored=None, probe=None)
        self._calls.append(call)

    def _take(self) -> None:
        """Take all calls that wait to be delivered."""
        self._deliver()
        self._read_waiting()

    def _read(self) -> list[Call]:
        self._take()
        if self._calls:
            return self._calls
        if self._elsewhere:
            raise complain(self._layers, self._elsewhere, "modules in which attention ran")
        if self._state == "not entered":
            raise GeoattnError("this record is empty: enter the capture with `with capture(model) as record`.")
        if self._missing or any(use.is_missing for use in self._account):
            names = {use.name: use.meaning for use in (*self._missing, *self._account) if use.is_missing}
            said = "; ".join(f"{name!r}: {meaning}" for name, meaning in list(names.items())[:4])
            raise GeoattnError(f"no attention ran in this capture that can be recorded. {said}.")
        if not self._began and self._state == "closed":
            raise GeoattnError(
                "no attention ran in this capture: no forward pass began. Call the module itself, model(...), inside"
                " the block; methods such as model.encode(...) do not run it as a module."
            )
        raise GeoattnError(
            "no attention ran in this capture: run the model inside the block; attention is"
            " scaled_dot_product_attention, or a softmax over the last axis that is multiplied with values."
        )


def _worth_a_check(route: str, sink: int, random: bool) -> tuple[str, ...]:
    """What the first call of each kind is checked for without being asked."""
    return (route, *(("sink",) if sink else ()), *(("random mask",) if random else ()))


def _without_inputs(raw: RawCall) -> RawCall:
    """The call as a capture without ``inputs`` sees it: another capture of the same model wanted them."""
    raw = raw._replace(inputs=False, value=None, context=raw.context._replace(tokens=None, source=None))
    return raw if raw.weights is None else raw._replace(query=None, key=None)
