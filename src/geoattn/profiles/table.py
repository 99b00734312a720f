"""From the states of lenses to the tidy table of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from geoattn.profiles.lens import Lens

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "make_table"]

COLUMNS = (
    "layer", "name", "head", "lens", "convention", "statistic", "value", "lower", "upper", "half_width", "samples",
    "count",
)  # fmt: skip


def make_table(
    lenses: Sequence[tuple[Lens, Mapping[int, Any]]],
    heads: Sequence[int],
    layers: Sequence[str],
    samples: int,
    level: float,
    samples_of: Mapping[int, int],
) -> pd.DataFrame:
    """Rows by head, by layer, and for the whole model, which have no layer; a layer's rows have no head.

    ``lenses`` are lenses with their states by number of the layer, ``heads`` the numbers of heads of the layers.
    ``samples_of`` are the numbers of samples of the layers: those of a layer of images may differ from those of texts.
    """
    import pandas as pd

    rows: list[tuple[Any, ...]] = []
    for lens, states in lenses:
        places: list[tuple[int | None, str, int | None, list[Any], slice]] = []
        for layer, state in states.items():
            for head in range(heads[layer]):
                places.append((layer, layers[layer], head, [state], slice(head, head + 1)))
            places.append((layer, layers[layer], None, [state], slice(None)))
        if states:
            places.append((None, "", None, list(states.values()), slice(None)))
        for layer, name, head, some, part in places:
            for row in lens.rows(some, part, level):
                count = samples if layer is None else samples_of.get(layer, samples)
                estimate = (row.value, row.lower, row.upper, row.half_width, count, row.count)
                rows.append((layer, name, head, row.lens or lens.name, lens.convention, row.statistic, *estimate))
    table = pd.DataFrame(rows, columns=pd.Index(COLUMNS))
    table["layer"], table["head"] = table["layer"].astype("Int64"), table["head"].astype("Int64")
    order = ["lens", "convention", "layer", "head", "statistic"]
    return table.sort_values(order, kind="stable", na_position="first").reset_index(drop=True)
