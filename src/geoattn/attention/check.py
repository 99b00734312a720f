"""The self-check of a call: its map times the values against the output of the model, and the sums of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.attention.call import PROBED_ROWS

__all__ = ["CaptureCheck", "CaptureWarning", "check_call"]

_NAN = float("nan")


class CaptureWarning(GeoattnWarning):
    """Captured attention is not what a lens expects; the message says what is off and where.

    Examples
    --------
    >>> import warnings, geoattn as ga
    >>> warnings.simplefilter("error", ga.CaptureWarning)  # a capture that fails its check is then an error
    >>> warnings.resetwarnings()
    """


@dataclass(frozen=True, repr=False)
class CaptureCheck(Displayed):
    """Self-check of one call on the first head of the first sample, at most 64 of its rows.

    ``error`` is the largest difference between (map) x (values) and the output of the model, relative to the
    largest value; NaN when nothing to compare with was kept. ``row_sums`` is (least,
    largest) over rows of real tokens. ``padded`` is the largest weight that a real token gives to padding.
    ``findings`` are sentences, none when all is well.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.rand(1, 5, 8, generator=torch.Generator().manual_seed(0))
    >>> with ga.capture(model) as record, torch.no_grad():
    ...     _ = model(x, x, x, need_weights=False)
    >>> check = record.check()[0]
    >>> check.ok, check.findings
    (True, ())
    """

    name: str
    route: str
    error: float
    row_sums: tuple[float, float]
    padded: float
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when nothing was found."""
        return not self.findings


@torch.no_grad()
def check_call(call: Any) -> CaptureCheck:
    """Build some rows of the map anew and compare. O(64 m d)."""
    try:
        rows = call.valid[0].nonzero().flatten()
    except GeoattnError as error:
        findings = (str(error).rstrip("."), *_blocks(call))
        return CaptureCheck(call.name, call.route, _NAN, (_NAN, _NAN), 0.0, findings)
    if not rows.numel():
        return CaptureCheck(call.name, call.route, _NAN, (_NAN, _NAN), 0.0, ())
    rows = rows[torch.linspace(0, rows.numel() - 1, min(PROBED_ROWS, rows.numel())).long()]
    first = slice(0, 1)
    weights = call.stored.build(first, first, rows, call.name)[0, 0].double()
    real = call.valid_keys[0]
    sums = weights.sum(-1)
    low, high = float(sums.min()), float(sums.max())
    padded = float(weights[:, ~real].max()) if not bool(real.all()) else 0.0
    error = _error(call, weights, rows)
    blocks = _blocks(call)
    findings = _findings(weights, error, sums, 0.0 if blocks else padded, _limit(call), call.stored.random) + blocks
    return CaptureCheck(call.name, call.route, error, (low, high), padded, findings)


def _error(call: Any, weights: torch.Tensor, rows: torch.Tensor) -> float:
    """Largest difference between (map) x (values) and the output of the model; NaN when there is none to compare with.

    Under dropout, weights that the model made are compared as the model used them. A fused kernel does not show its
    dropout: there the map is compared with what the kernel makes of the same operands without dropout.
    """
    probe = call.probe
    if probe is None:
        return _NAN
    if probe.error is not None:
        return float(probe.error[0].abs().max()) / max(float(probe.error[1]), 1e-30)
    value, output = probe.value.double(), probe.output
    if probe.dropout and probe.used is not None:
        weights, output = probe.used.double(), output[: len(probe.used)]
    elif probe.dropout and call.stored.weights is None:
        output = call.stored.run_kernel(probe.value)[rows]
    elif probe.dropout:
        return _NAN
    else:
        output = output[rows]
    difference = (weights @ value - output.double()).abs().max()
    return float(difference / value.abs().max().clamp_min(1e-30))


def _blocks(call: Any) -> tuple[str, ...]:
    """Attention inside of overlapping blocks that the module itself cuts: what is a sample and a head is a guess."""
    if not call.in_blocks:
        return ()
    (n, m), length = call.shape[2:], call.stored.length
    return (f"maps of {n} x {m} in a module with {length} tokens: blocks, which count as samples or as heads",)


def _limit(call: Any) -> float:
    """What rounding may do: more in 16 bits, and on devices that multiply float32 with fewer bits."""
    dtypes = {
        call.stored.cast,
        call.stored.any_part().dtype,
        call.probe.value.dtype if call.probe is not None and call.probe.value is not None else None,
    }
    if dtypes & {torch.float16, torch.bfloat16}:
        return 2e-2
    return 1e-4 if call.stored.any_part().device.type == "cpu" else 5e-3


def _findings(
    weights: torch.Tensor, error: float, sums: torch.Tensor, padded: float, limit: float, random: bool
) -> tuple[str, ...]:
    if random:
        return (
            "the model drops weights with a random mask of its own, so that this is the map after dropout; capture it"
            " in evaluation mode, or write the dropout with torch.nn.functional.dropout",
        )
    found = []
    if not bool(weights.isfinite().all()):
        return ("the map of a real token is not finite",)
    empty = int((sums == 0).sum())
    if empty:
        found.append(f"{empty} of {len(sums)} rows are empty: a mask hides all keys from these queries")
        sums = sums[sums != 0]
    low, high = (float(sums.min()), float(sums.max())) if sums.numel() else (1.0, 1.0)
    if bool((weights < 0).any()):
        if bool(((weights.exp().sum(-1) - 1).abs() < 1e-2).all()):
            found.append(f"entries are negative (down to {float(weights.min()):.3g}): these are logits, not weights")
        else:
            found.append(
                f"entries are negative (down to {float(weights.min()):.3g}): the map is a mixture or a difference of"
                " softmax maps (talking heads, differential attention), not a probability"
            )
    elif high > 1 + limit:
        found.append(f"rows sum to {low:.4g} to {high:.4g}, not to one: they are not probabilities")
    elif low < 1 - limit:
        found.append(
            f"rows sum to {low:.4g} to {high:.4g}: the rest goes to a sink that is no token; divide by"
            " the sums, or keep it as a node of its own"
        )
    if error > limit:
        found.append(
            f"map x values differs from the model's output by {error:.2g}: something between the map and the"
            " output is not captured"
        )
    if padded > limit:
        found.append(f"real tokens give padding a weight of up to {padded:.2g}: attention_mask is not obeyed here")
    return tuple(found)
