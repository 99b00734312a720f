"""One row a head, one column a number: which heads are sinks, which are bottlenecks, and does the convention matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn._core.errors import GeoattnError

if TYPE_CHECKING:
    import pandas as pd

    from geoattn.profiles.result import Profile

__all__ = ["edges_table", "heads_table"]

#: Columns by statistic of the table, in their order; those that were not measured are left out.
_CURVATURE = ("distance_to_one", "mean", "negative_share", "negative_mass", "q05", "min", "std")
_OTHERS = (
    ("sinks", "first_token"), ("sinks", "heaviest_token"), ("sinks", "distance_to_one_without_sink"),
    ("sink_mass", "first_token"), ("sink_mass", "heaviest_token"), ("weights", "row_entropy"),
    ("weights", "self_weight"), ("weights", "variance"), ("spectrum", "second_eigenvalue"),
    ("smoothness", "local_constant"),
)  # fmt: skip


def heads_table(profile: Profile, convention: str | None = None) -> pd.DataFrame:
    """See `Profile.heads`."""
    import pandas as pd

    names = [c.name for c in profile.conventions]
    if convention is not None and convention not in names:
        raise GeoattnError(f"this profile has the conventions {', '.join(names)}; got {convention!r}.")
    rows = profile.table[profile.table["head"].notna()]
    wide = rows.pivot_table(
        index=["layer", "name", "head"], columns=["lens", "convention", "statistic"], values="value", dropna=False
    )
    wide = wide.dropna(how="all")
    found: dict[str, Any] = {}
    main = convention or names[0]
    for statistic in _CURVATURE:
        if ("curvature", main, statistic) in wide.columns:
            found[statistic] = wide["curvature", main, statistic]
    if "negative_mass" in found:
        share = found["negative_share"]
        found["negative_depth"] = (found.pop("negative_mass") / share.where(share > 0)).fillna(0.0)
    for lens, statistic in _OTHERS:
        if statistic not in found and (lens, "", statistic) in wide.columns:
            found[statistic] = wide[lens, "", statistic]
    ranks = {f"rank_{name}": wide["curvature", name, "distance_to_one"].rank(ascending=False) for name in names}
    found |= {column: values.round().astype("Int64") for column, values in ranks.items()}
    if len(names) > 1:
        together = pd.DataFrame(ranks)
        found["rank_spread"] = (together.max(axis=1) - together.min(axis=1)).round().astype("Int64")
    order = ["distance_to_one", "mean", "negative_share", "negative_depth"]
    table = pd.DataFrame(found, index=wide.index)
    table = table[[*(c for c in order if c in table), *(c for c in table if c not in order)]].reset_index()
    table["layer"], table["head"] = table["layer"].astype(int), table["head"].astype(int)
    return table.sort_values(["layer", "head"], ignore_index=True)


def edges_table(profile: Profile, sample: int, layer: int, head: int, tokens: bool) -> pd.DataFrame:
    """See `Profile.edges`."""
    import pandas as pd

    example = next((e for e in profile.examples if e.sample == sample), None)
    if example is None:
        kept = ", ".join(str(e.sample) for e in profile.examples) or "none"
        raise GeoattnError(
            f"the edges of sample {sample} were not kept (kept: {kept}); profile with examples={sample + 1} or more."
        )
    if not 0 <= layer < len(profile.layers):
        raise GeoattnError(f"this profile has layers 0 to {len(profile.layers) - 1}; got {layer}.")
    if not 0 <= head < profile.settings["heads"][layer]:
        raise GeoattnError(f"layer {layer} has heads 0 to {profile.settings['heads'][layer] - 1}; got {head}.")
    own = np.flatnonzero(example.edges[layer][:, 0] == head)
    own = own[np.argsort(-example.weights[layer][own], kind="stable")]
    i, j = example.edges[layer][own, 1], example.edges[layer][own, 2]
    columns: dict[str, Any] = {"i": i, "j": j}
    if tokens:
        columns |= {"token_i": [example.tokens[k] for k in i], "token_j": [example.tokens[k] for k in j]}
    return pd.DataFrame({**columns, "weight": example.weights[layer][own], "kappa": example.kappa[layer][own]})
