from __future__ import annotations

import matplotlib
import numpy as np
import pytest

import geoattn as ga
from geoattn import plots

matplotlib.use("Agg")


@pytest.fixture
def ax():
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    yield axes
    figure.savefig("/dev/null", format="png")
    pyplot.close(figure)


def test_densities_have_the_area_of_what_is_shown(ax, digits):
    assert plots.distributions(digits, ax=ax) is ax
    outlines = [p for p in ax.patches if not p.get_fill()]
    assert len(outlines) == 2
    for patch in outlines:
        values, edges, _ = patch.get_data()
        assert 0.97 < np.sum(values * np.diff(edges)) <= 1 + 1e-9  # the rarest 1 % may lie farther left
    assert [t.get_text()[:8] for t in ax.get_legend().get_texts()] == ["layer 0:", "layer 7:"]


def test_two_models(ax, digits, untrained):
    plots.compare(digits, untrained, convention="hop", ax=ax)
    value = untrained.value("distance_to_one", layer=7, convention="hop")[0]
    assert ax.get_legend().get_texts()[1].get_text() == f"untrained: {value:.3f}"


@pytest.mark.parametrize("statistic", ["distance_to_one", "negative_share", "variance", "std"])
def test_layers(ax, digits, statistic):
    plots.layers(digits, statistic, ax=ax)
    lens = "weights" if statistic == "variance" else "curvature"
    expected = [digits.value(statistic, layer=k, lens=lens)[0] for k in range(8)]
    assert np.array_equal(ax.lines[0].get_ydata(), expected)


def test_heads(ax, hostile):
    plots.heads(hostile, ax=ax)
    shown = ax.images[0].get_array()
    assert shown.shape == (3, 2)
    assert shown[2, 1] == hostile.value("distance_to_one", layer=2, head=1)[0]


def test_attention_graphs(ax, digits):
    plots.attention_graph(digits.examples[0], 3, 0, edges=11, ax=ax)
    assert len(ax.patches) == 11
    assert len(ax.images) == 1


@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")
def test_hostile_tokens_are_drawn_as_text(ax, hostile):
    plots.attention_graph(hostile.examples[0], 1, 1, ax=ax)
    labels = [t.get_text() for t in ax.get_xticklabels()]
    assert labels[1] == "<script>window.…"
    assert max(map(len, labels)) <= 18


def test_bad_choices_are_one_clear_line(digits):
    with pytest.raises(ga.GeoattnError, match="layers 0 to 7; got 8"):
        plots.distributions(digits, layers=(8,))
    with pytest.raises(ga.GeoattnError, match=r"conventions markov, hop, grc-0\.6, grc-0\.5; got 'x'"):
        plots.layers(digits, convention="x")
    with pytest.raises(ga.GeoattnError, match="no statistic 'nonsense'"):
        plots.layers(digits, "nonsense")
    with pytest.raises(ga.GeoattnError, match="no edge in layer 0, head 1"):
        plots.attention_graph(digits.examples[0], 0, 1)
