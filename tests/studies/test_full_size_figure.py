"""The figure of the studies at the paper's size: what is in which panel, on results by hand."""

from pathlib import Path

import numpy as np
import pytest

from geoattn.studies import find_study
from tests.studies.made_up import made_up


def figure_of(name, keep=lambda config: True, without=()):
    study = find_study(name)
    pairs = [(config, made_up(config)) for config in study.configs("paper") if keep(config)]
    return study.figure([(config, {k: v for k, v in result.items() if k not in without}) for config, result in pairs])


def panel(figure, title):
    (found,) = [ax for ax in figure.get_axes() if ax.get_title().replace("\n", " ") == title]
    return found


@pytest.mark.parametrize("name", ["adjusted-lvit", "adjusted-headlines", "masked-lvit", "curvature-lvit"])
def test_every_data_set_has_losses_numbers_and_distributions(name):
    figure = figure_of(name)
    data = {config["data"] for config in find_study(name).configs("paper")}
    titles = [ax.get_title() for ax in figure.get_axes()]
    assert sum("training loss" in title and ":" in title for title in titles) >= len(data)
    assert sum("last layer" in title for title in titles) == 4 * len(data)
    assert len(set(titles)) == len(titles)


def test_a_study_without_distributions_has_none():
    titles = [ax.get_title() for ax in figure_of("forgetting-lvit", without=("distribution",)).get_axes()]
    assert len(titles) == 3
    assert all(title.startswith("Fashion-MNIST, then MNIST") for title in titles)


def test_a_distribution_is_the_mean_of_quantiles_over_seeds():
    figure = figure_of("adjusted-lvit", lambda c: c["data"] == "mnist" and c["direction"] != "none")
    ax = panel(figure, "MNIST: last layer, markov")
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines) == ["before training", "decrease", "increase"]
    of_seeds = [made_up({"seed": seed})["distribution"]["end"]["markov"]["quantiles"] for seed in range(5)]
    np.testing.assert_allclose(lines["increase"].get_xdata(), np.mean(of_seeds, axis=0)[1:])
    np.testing.assert_allclose(lines["increase"].get_ydata(), np.linspace(0, 1, 51)[1:])


def test_each_seed_is_a_point():
    figure = figure_of("adjusted-lvit", lambda c: c["data"] == "cifar10")
    points, mean = panel(figure, "CIFAR-10 (JPEG): test accuracy").get_lines()[:2]
    accuracies = [made_up({"seed": seed})["test_accuracy"] for seed in range(5)]
    np.testing.assert_allclose(points.get_ydata(), accuracies)
    np.testing.assert_allclose(mean.get_ydata(), np.mean(accuracies))


@pytest.mark.parametrize("name", ["adjusted-lvit", "adjusted-headlines", "masked-lvit"])
def test_each_arm_has_a_colour_of_its_own(name):
    ax = next(ax for ax in figure_of(name).get_axes() if "training loss" in ax.get_title())
    colours = [line.get_color() for line in ax.get_lines()]
    assert len(set(colours)) == len(colours) > 2


def test_a_degenerate_distribution_leaves_its_line_out():
    study = find_study("adjusted-lvit")
    config = next(c for c in study.configs("paper") if c["direction"] == "none")
    result = made_up(config)
    nothing = {"quantiles": None, "mean": None, "low": None, "dip": None, "missing": 1.0}
    start, end = result["distribution"].values()
    result["distribution"] = {
        "start": {**start, "grc-0.6": nothing},
        "end": {**end, "hop": nothing, "grc-0.6": nothing},
    }
    figure = study.figure([(config, result)])
    found = {"hop": ["before training"], "markov": ["before training", "none"], "grc-0.6": []}
    for convention, labels in found.items():
        lines = panel(figure, f"Fashion-MNIST: last layer, {convention}").get_lines()
        assert [line.get_label() for line in lines] == labels


@pytest.mark.parametrize("name", ["dose-response", "strength-pilot"])
def test_doses_are_in_order_with_a_line_for_each_direction(name):
    figure = figure_of(name)
    ax = panel(figure, "Fashion-MNIST: test accuracy")
    lines = {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}
    assert list(lines) == ["none", "decrease", "increase"]
    assert lines["increase"].get_xdata().tolist() == [0.03, 0.1, 0.3, 1.0]
    seeds = {config["seed"] for config in find_study(name).configs("paper")}
    mean = np.mean([made_up({"seed": seed})["test_accuracy"] for seed in seeds])
    np.testing.assert_allclose(lines["increase"].get_ydata(), mean)
    np.testing.assert_allclose(lines["none"].get_ydata(), mean)
    points = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in points] == [len(seeds)] * 8


def test_doses_that_are_not_done_yet_leave_their_lines_short():
    figure = figure_of("dose-response", lambda c: c["direction"] == "increase" and c["strength"] in (0.1, 1.0))
    lines = {line.get_label(): line for line in panel(figure, "Fashion-MNIST: test accuracy").get_lines()}
    assert lines["increase"].get_xdata().tolist() == [0.1, 1.0]
    assert lines["decrease"].get_xdata().tolist() == []
    assert "none" not in lines


def test_the_guide_shows_the_figure_of_the_pilot():
    root = Path(__file__).parents[2]
    shown, drawn = root / "docs/images/strength.png", root / "results/strength-pilot/paper/strength-pilot.png"
    assert shown.read_bytes() == drawn.read_bytes()
