"""Saving, loading and comparing profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoattn as ga
from geoattn.profiles.examples import Example


@pytest.fixture(scope="module")
def profiles() -> tuple[ga.profiles.Profile, ga.profiles.Profile]:
    digits = ga.load_data("digits", split="test", limit=20)
    trained = ga.load_model("lvit-digits")
    changes = {"image_size": 8, "patch_size": 2}
    random = ga.load_model("lvit-mnist", weights="random", **changes)
    both = ["markov", "hop"]
    return ga.profile(trained, digits, convention=both), ga.profile(random, digits, convention=both, name="random")


def parts(example: Example) -> tuple[np.ndarray, ...]:
    return example.kappa + example.weights + example.edges


def test_what_is_saved_comes_back(profiles: tuple[ga.profiles.Profile, ga.profiles.Profile], tmp_path) -> None:
    a, _ = profiles
    a.save(tmp_path / "a.npz")
    b = ga.profiles.Profile.load(tmp_path / "a.npz")
    assert a.table.equals(b.table)
    assert (a.layers, a.conventions, a.settings) == (b.layers, b.conventions, b.settings)
    assert all(
        (x == y).all() for name in a.histograms for x, y in zip(a.histograms[name], b.histograms[name], strict=True)
    )
    assert a.resampled.keys() == b.resampled.keys()
    assert all((a.resampled[key] == b.resampled[key]).all() for key in a.resampled)
    for x, y in zip(a.examples, b.examples, strict=True):
        assert (x.tokens, x.valid, x.grid, x.sample) == (y.tokens, y.valid, y.grid, y.sample)
        assert (x.image == y.image).all()
        assert all((p == q).all() for p, q in zip(parts(x), parts(y), strict=True))
    assert repr(a) == repr(b)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"text"])
def test_other_files_are_refused(tmp_path, content: bytes) -> None:
    path = tmp_path / "profile.npz"
    path.write_bytes(content)
    with pytest.raises(ga.GeoattnError, match="not a profile"):
        ga.profiles.Profile.load(path)
    with pytest.raises(ga.GeoattnError, match="no such file"):
        ga.profiles.Profile.load(tmp_path / "none.npz")


def test_a_curvature_file_is_not_a_profile(tmp_path) -> None:
    ga.ollivier_ricci(np.eye(3) / 2 + 1 / 6, "hop", edges=1).save(tmp_path / "c.npz")
    with pytest.raises(ga.GeoattnError, match="not a profile"):
        ga.profiles.Profile.load(tmp_path / "c.npz")


def test_pairs_are_known_by_what_was_seen(profiles: tuple[ga.profiles.Profile, ga.profiles.Profile]) -> None:
    a, b = profiles
    assert a.paired_with(b)
    model = ga.load_model("lvit-digits")
    pixels = ga.load_data("digits", split="test", limit=6).pixels()
    once, parts = ga.profile(model, [pixels]), ga.profile(model, list(pixels.split(2)))
    assert once.paired_with(parts)
    assert not once.paired_with(ga.profile(model, [pixels.flip(0)]))
    assert not once.paired_with(ga.profile(model, [pixels], seed=1))


def test_a_model_equals_itself(profiles: tuple[ga.profiles.Profile, ga.profiles.Profile]) -> None:
    table = profiles[0].compare(profiles[0])
    assert (table[["difference", "lower", "upper"]] == 0).all(axis=None)
    assert (table["p"] == 1).all()


def test_trained_and_random_differ(profiles: tuple[ga.profiles.Profile, ga.profiles.Profile]) -> None:
    a, b = profiles
    table = a.compare(b).set_index("layer")
    assert list(table.index) == ["whole model", *map(str, range(8))]
    row = table.loc["whole model"]
    assert row["this"] == a.value("distance_to_one")[0]
    assert row["difference"] == pytest.approx(row["other"] - row["this"])
    assert row["lower"] < row["difference"] < row["upper"] < 0  # random attention is nearly flat: close to one
    assert row["p"] == 2 / 1000
    back = b.compare(a).set_index("layer").loc["whole model"]
    assert back["difference"] == pytest.approx(-row["difference"])


def test_models_of_different_depth_are_compared_at_both_ends(
    profiles: tuple[ga.profiles.Profile, ga.profiles.Profile],
) -> None:
    digits = ga.load_data("digits", split="test", limit=20)
    short = ga.load_model("lvit-mnist", weights="random", image_size=8, patch_size=2, depth=3)
    table = profiles[0].compare(ga.profile(short, digits))
    assert list(table["layer"]) == ["whole model", "first", "last"]
    assert table["this"][2] == profiles[0].value("distance_to_one", layer=7)[0]


def test_missing_rows_are_named(profiles: tuple[ga.profiles.Profile, ga.profiles.Profile]) -> None:
    with pytest.raises(ga.GeoattnError, match="no row for curvature, markov, mode"):
        profiles[0].value("mode")


@pytest.mark.parametrize(
    ("statistic", "place", "words"),
    [
        ("first_token", {"layer": 0, "head": 0}, r"belongs to the lens sink_mass. Give lens='sink_mass'\. See"),
        ("meen", {}, r"the lens curvature has distance_to_one, .* Did you mean 'mean'\? See"),
        ("row_entropy", {"lens": "wheights"}, "belongs to the lens weights"),
        ("mode", {"lens": "wheights"}, "this profile has the lenses curvature, .*weights"),
        ("mean", {"convention": "grc-0.5"}, "the lens curvature has (markov, hop|hop, markov)"),
        ("first_token", {"lens": "sink_mass", "convention": "hop"}, "the lens sink_mass has no convention"),
        ("mean", {"layer": 8}, "this profile has layers 0 to 7"),
        ("mean", {"layer": 0, "head": 1}, "layer 0 has heads 0 to 0"),
        ("mean", {"head": 0}, "Give layer="),
        ("q05", {}, "the lens curvature has q05 in other places only"),
    ],
)
def test_a_missing_row_says_where_to_look(
    profiles: tuple[ga.profiles.Profile, ga.profiles.Profile], statistic: str, place: dict[str, Any], words: str
) -> None:
    with pytest.raises(ga.GeoattnError, match=f"no row for .*{words}"):
        profiles[0].value(statistic, **place)


def test_what_cannot_be_compared_is_said(
    profiles: tuple[ga.profiles.Profile, ga.profiles.Profile], tmp_path: Path
) -> None:
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=3)
    other = ga.profile(model, digits, convention="grc-0.5")
    with pytest.raises(ga.GeoattnError, match=r"share no convention \(markov, hop; grc-0\.5\): profile one"):
        profiles[0].compare(other)
    assert len(profiles[0].compare(other, "first_token", lens="sink_mass")) == 9
    with pytest.raises(ga.GeoattnError, match="not both profiles have the convention markov: give one of hop"):
        profiles[0].compare(ga.profile(model, digits, convention="hop"))
    with pytest.raises(ga.GeoattnError, match=r"expected a Profile, .*; got LViT\. Profile the model first"):
        profiles[0].compare(model)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ga.GeoattnError, match=r"expected a Profile, .*; got int"):
        profiles[0].report(tmp_path / "r.html", other=3)  # pyright: ignore[reportArgumentType]
