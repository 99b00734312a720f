"""What all figures share: axes, colours, labels."""

from __future__ import annotations

from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.visible import visible
from geoattn.profiles.result import Profile

__all__ = ["COLOURS", "LABELS", "convention_of", "label_of", "layer_of", "lens_of", "own_axes", "plain"]

#: Colours that colour-blind readers tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LABELS = {
    "distance_to_one": "distance to one", "mean": "mean curvature", "negative_share": "share of negative edges",
    "negative_mass": "mean of max(0, -curvature)", "row_entropy": "row entropy (nats)",
    "variance": "variance of the weights", "self_weight": "weight on the token itself",
    "first_token": "weight on the first token", "heaviest_token": "weight on the heaviest token",
    "std": "standard deviation of curvature", "q05": "5 % quantile of curvature", "q50": "median curvature",
    "second_eigenvalue": "second eigenvalue", "smallest_eigenvalue": "smallest eigenvalue",
    "local_constant": "local Lipschitz constant",
}  # fmt: skip


def own_axes(ax: Any) -> Any:
    """The given axes, or new ones of the size of a column."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(4.2, 3.0), layout="constrained")[1]


def convention_of(profile: Profile, convention: str | None) -> str:
    """The name of a convention of the profile, the first by default."""
    names = [c.name for c in profile.conventions]
    if convention is not None and convention not in names:
        raise GeoattnError(f"this profile has the conventions {', '.join(names)}; got {convention!r}.")
    return convention or names[0]


def layer_of(profile: Profile, layer: int) -> int:
    """The number of a layer, counted from the end when negative."""
    if not -len(profile.layers) <= layer < len(profile.layers):
        raise GeoattnError(f"this profile has layers 0 to {len(profile.layers) - 1}; got {layer}.")
    return layer % len(profile.layers)


def lens_of(profile: Profile, statistic: str, convention: str | None) -> tuple[str, str]:
    """(lens, convention) of a statistic of the table; curvature first."""
    found = profile.table.loc[profile.table["statistic"] == statistic, "lens"].unique().tolist()
    if not found:
        raise GeoattnError(f"no statistic {statistic!r} in this profile; see .to_pandas() for those there are.")
    lens = "curvature" if "curvature" in found else found[0]
    return lens, convention_of(profile, convention) if lens == "curvature" else ""


def label_of(text: str) -> str:
    """A name on one line, without mathematics in it."""
    return visible(text).replace("$", r"\$")


def plain(ax: Any) -> Any:
    """Without the upper and the right frame."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax
