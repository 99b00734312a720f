"""The record of an open or closed capture: a sequence of attention calls in forward order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

import torch

from geoattn.capture.call import Call
from geoattn.capture.check import CaptureCheck, CaptureWarning, check_call
from geoattn.capture.kept import storage_bytes
from geoattn.capture.maps import Mask, compact_mask
from geoattn.capture.reading import read_sighting, reads_a_cache, versions_of
from geoattn.capture.selection import Layers, chooser, complain
from geoattn.capture.sighting import Glimpse, Sighting
from geoattn.capture.sightings import Sightings
from geoattn.errors import GeoattnError

__all__ = ["Record"]


class Record(Sequence):  # not Sequence[Call]: type checkers at run time would read it when it is still empty
    """Attention calls in forward order; what `capture` gives.

    Readable inside the block after a forward pass, and after the block. To read a record in which no
    attention ran is an error. Its memory is that of queries and keys: 2 d / n of the maps (3 % for n = 4,096
    and d = 64).
    """

    def __init__(
        self,
        layers: Layers,
        inputs: bool,
        reduce: Callable[[Call], Any] | None,
        early: Callable[[Any, Any, float], Any] | None,
    ) -> None:
        self._calls: list[Call] = []
        self._waiting: list[tuple[Sighting | Glimpse, tuple[int | None, ...]]] = []
        self._layers = layers
        self._reduce = reduce
        self._elsewhere: dict[str, None] = {}
        self._visits: dict[str, int] = {}
        self._checked: set[str] = set()
        self._last_self: Call | None = None
        self._state = "not entered"
        self.sightings = Sightings(inputs, early, self._receive)

    @overload
    def __getitem__(self, index: int) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> list[Call]: ...
    def __getitem__(self, index: int | slice) -> Call | list[Call]:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[Call]:
        return iter(self._read())

    def __bool__(self) -> bool:
        self._take()
        return bool(self._calls)

    def __repr__(self) -> str:
        return f"Record({len(self._calls) + len(self._waiting)} calls, {self._state})"

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
        """Self-check of the first call of each module: map against the model's own output, and sums of rows.

        The first call of each route is checked without being asked, and warns with `CaptureWarning`.
        """
        return [check_call(call) for call in self._read() if call.visit == 0 and call.kept is not None]

    def glimpses(self) -> list[Glimpse] | None:
        """All calls since the last `clear`, if they were noted in haste and nobody has read them; None: read them."""
        self.sightings.deliver()
        if self._calls:
            return None
        found = [seen for seen, _ in self._waiting if isinstance(seen, Glimpse) and seen.is_as_it_was()]
        return found if found and len(found) == len(self._waiting) else None

    def clear(self) -> None:
        """Forget the calls so far: for a capture that stays open over many steps."""
        self.sightings.deliver()
        self._waiting.clear()
        self._calls.clear()
        self._visits.clear()
        self._last_self = None

    @property
    def nbytes(self) -> int:
        """Memory behind all that is kept, each storage counted once."""
        return storage_bytes([t for call in self._read() if call.kept is not None for t in call.kept.tensors()])

    def open(self) -> None:
        """The block begins."""
        self._state = "open"

    def close(self) -> None:
        """The block has ended: take what is still on the way, and make masks small; layers share theirs."""
        self._take()
        self._state = "closed"
        self._last_self = None
        small: dict[Any, Mask] = {}
        for i, call in enumerate(self._calls):
            if call.kept is not None and call.kept.mask.entries is not None:
                self._calls[i] = replace(call, kept=call.kept.with_mask(lambda mask: _shared(mask, small)))

    def _receive(self, sighting: Sighting | Glimpse | str | GeoattnError) -> None:
        """A call has been seen. It is read when somebody asks for it, unless that would be too late."""
        if isinstance(sighting, GeoattnError):
            raise sighting
        if isinstance(sighting, str):
            self._elsewhere[sighting] = None
            return
        if isinstance(sighting, Glimpse):
            if self._reduce is None:
                self._waiting.append((sighting, sighting.versions))
                return
            sighting = sighting.look()
        self._waiting.append((sighting, versions_of(sighting)))
        route = "sdpa" if sighting.weights is None else "softmax"
        if self._reduce is not None or route not in self._checked or reads_a_cache(sighting):
            self._read_waiting()

    def _read_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        with torch._C.DisableTorchFunction():  # an open capture must not see this
            for seen, versions in waiting:
                self._read_one(seen.look() if isinstance(seen, Glimpse) else seen, versions)

    def _read_one(self, sighting: Sighting, versions: tuple[int | None, ...]) -> None:
        name = sighting.context.name
        visit = self._visits.get(name, 0)
        self._visits[name] = visit + 1
        call = read_sighting(sighting, versions, len(self._calls), visit, self._last_self)
        if call.kind == "self":
            self._last_self = call
        if call.route not in self._checked:
            self._checked.add(call.route)
            result = check_call(call)
            if not result.ok:
                text = f"attention of {call.name!r}: {'; '.join(result.findings)}."
                warnings.warn(text, CaptureWarning, stacklevel=2)
        if self._reduce is not None:
            with torch.no_grad():
                call = replace(call, reduced=self._reduce(call), kept=None, probe=None)
        self._calls.append(call)

    def _take(self) -> None:
        """Everything that is still on its way."""
        self.sightings.deliver()
        self._read_waiting()

    def _read(self) -> list[Call]:
        self._take()
        if self._calls:
            return self._calls
        if self._elsewhere:
            raise complain(self._layers, self._elsewhere, "modules in which attention ran")
        if self._state == "not entered":
            raise GeoattnError("this record is empty: enter the capture with `with capture(model) as record`.")
        raise GeoattnError(
            "no attention ran in this capture: run the model inside the block; attention is"
            " scaled_dot_product_attention, or a softmax over the last axis that is multiplied with values."
        )


def _shared(mask: Mask, small: dict[Any, Mask]) -> Mask:
    """The mask made small, once for all layers that use it."""
    entries = mask.entries
    if entries is None:
        return mask
    key = (entries.data_ptr(), entries.shape, entries.stride(), entries.dtype, mask.diagonal)
    if key not in small:
        small[key] = compact_mask(mask)
    return small[key]
