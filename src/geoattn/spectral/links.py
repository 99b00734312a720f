"""Every link between curvature and spectrum, on each head of a captured model: theorems, and what is only assumed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn.attention.record import Record
from geoattn.graph.captured import is_recorded
from geoattn.graph.convention import Convention
from geoattn.spectral.inequalities import Inequality, assumed_bound, contraction_bound, neighbourhood_bound

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["spectral_links", "spectral_table"]

_PRESETS = ("markov", "grc-0.5", "grc-0.6", "hop")


def spectral_links(
    attention: Any,
    *,
    metrics: Sequence[str] = ("hop", "-log w"),
    steps: Sequence[int] = (1, 2, 3, 4),
    conventions: Sequence[str | Convention] = _PRESETS,
) -> tuple[Inequality, ...]:
    r"""All inequalities between the curvature and the eigenvalues of one map, each with its hypotheses and its slack.

    In this order: :math:`|\lambda| \le 1 - k` over all pairs, for each metric (a theorem); Bauer, Jost and Liu for the
    symmetric part (A + A^T) / 2 with neighbourhood graphs of ``steps`` steps, lower and upper (theorems where the
    graph is connected); and :math:`k \le 1 - |\lambda_2|` with k over the edges under each convention, which the Ricci
    paper takes for granted and which is a theorem for hop distance and the rows of A as measures only.

    The metric "-log w" and the conventions solve all pairs, O(n^4); the rest is O(n^3).

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> two_groups = np.kron(np.eye(2), np.full((3, 3), 0.3)) + np.full((6, 6), 1 / 60)
    >>> links = ga.spectral.spectral_links(two_groups)
    >>> all(link.holds for link in links if link.theorem)
    True
    >>> [(link.name, round(link.slack, 2)) for link in links if not link.holds]
    [('assumed under grc-0.5', -0.48), ('assumed under grc-0.6', -0.48)]
    """
    if is_recorded(attention):
        raise GeoattnError(
            "one map at a time: give call.attention(sample=0, head=0)[0, 0], or the record to spectral_table."
        )
    a = np.asarray(attention, dtype=np.float64)
    found = [contraction_bound(attention, metric) for metric in metrics]
    for t in steps:
        found += neighbourhood_bound((a + a.T) / 2, t)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # the smallest value is what counts here
        found += [assumed_bound(attention, convention) for convention in conventions]
    return tuple(found)


def spectral_table(record: Record, *, samples: int = 1, **choices: Any) -> pd.DataFrame:
    """`spectral_links` of every layer and head of a captured model, for its first samples.

    One row for each layer, head, sample and inequality: ``layer``, ``name`` (of the module), ``head``, ``sample``,
    ``inequality``, ``theorem``, ``left``, ``right``, ``slack``, ``holds``. Padding is left out. ``choices`` are those
    of `spectral_links`. Cross attention has no eigenvalues and is left out too.

    Examples
    --------
    >>> import geoattn as ga, torch
    >>> model, images = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=1)
    >>> with ga.capture(model, layers="transformer.layers.0.0") as record, torch.no_grad():
    ...     _ = model(images.pixels())
    >>> table = ga.spectral.spectral_table(record)
    >>> bool(table[table.theorem].holds.all()), table.inequality[0], table.inequality.nunique()
    (True, 'contraction, hop distance', 14)
    """
    import pandas as pd

    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise GeoattnError(f"samples must be at least 1; got {samples!r}.")
    rows = []
    for layer, call in enumerate(call for call in record if call.kind != "cross"):
        for s in range(min(samples, call.shape[0])):
            for h, attention in _heads(call, s):
                for link in spectral_links(attention, **choices):
                    rows.append({
                        "layer": layer, "name": call.name, "head": h, "sample": s, "inequality": link.name,
                        "theorem": link.theorem, "left": link.left, "right": link.right, "slack": link.slack,
                        "holds": link.holds,
                    })  # fmt: skip
    if not rows:
        raise GeoattnError("this record has no self-attention, so no eigenvalues.")
    return pd.DataFrame(rows)


def _heads(call: Any, sample: int) -> Iterator[tuple[int, Float[np.ndarray, "n n"]]]:
    maps = call.attention(sample=slice(sample, sample + 1))[0].detach().double().cpu().numpy()
    real = call.valid[sample].cpu().numpy()
    for h, attention in enumerate(maps):
        weights = attention[np.ix_(real, real)]
        if len(weights) > 1:
            yield h, weights / weights.sum(axis=1, keepdims=True)  # float32 rows sum to one to seven digits only
