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


def test_every_layer_and_every_convention(ax, digits):
    from matplotlib import pyplot

    plots.ridges(digits, ax=ax)
    assert len(ax.get_yticks()) == 8
    figure, other = pyplot.subplots()
    plots.conventions(digits, ax=other)
    for line, convention in zip(other.lines, digits.conventions, strict=True):
        expected = [digits.value("distance_to_one", layer=k, convention=convention.name)[0] for k in range(8)]
        assert np.array_equal(line.get_ydata(), expected)
    pyplot.close(figure)


def test_one_point_a_head(ax, hostile):
    plots.relation(hostile, "heaviest_token", "negative_share", ax=ax)
    points = ax.collections[0].get_offsets()
    assert len(points) == 6
    expected = hostile.value("heaviest_token", layer=2, head=1, lens="sink_mass")[0]
    assert points[5, 0] == pytest.approx(expected)


def test_energies_are_those_of_the_run(ax):
    import torch

    run = ga.simulate(torch.eye(4, dtype=torch.float64).expand(2, 4, 4), until=1.0, save=6)
    plots.energy(run, ax=ax)
    assert len(ax.lines) == 2
    assert np.allclose(np.exp(ax.lines[1].get_ydata()), run.energy[:, 1])


def test_a_phase_diagram_shows_its_shares(ax):
    diagram = ga.dynamics.phase_diagram([0.5, 1.0], [8, 16], n=6, runs=2, until=2.0)
    plots.phase(diagram, 8, ax=ax)
    assert np.array_equal(
        ax.collections[0].get_array().reshape(diagram.probability.shape[:0:-1]), diagram.probability[0].T
    )
    with pytest.raises(ga.GeoattnError, match="has the dimensions 8, 16; got 9"):
        plots.phase(diagram, 9)


def test_drops_have_their_intervals(ax):
    data = ga.load_data("digits", split="test", limit=16)
    found = ga.robustness(ga.load_model("lvit-digits"), data, [ga.perturbations.Flip(0.5)])
    plots.accuracy_drops(found, ax=ax)
    assert ax.get_xlabel() == "drop in accuracy"
    assert ax.lines[0].get_xdata()[0] == found.drops[0].rho


def test_bad_choices_are_one_clear_line(digits):
    with pytest.raises(ga.GeoattnError, match="layers 0 to 7; got 8"):
        plots.distributions(digits, layers=(8,))
    with pytest.raises(ga.GeoattnError, match=r"conventions markov, hop, grc-0\.6, grc-0\.5; got 'x'"):
        plots.layers(digits, convention="x")
    with pytest.raises(ga.GeoattnError, match="no statistic 'nonsense'"):
        plots.layers(digits, "nonsense")
    with pytest.raises(ga.GeoattnError, match="no edge in layer 0, head 1"):
        plots.attention_graph(digits.examples[0], 0, 1)
