"""Experiments with known outcomes, as presets: a registry, and one file for each subject."""

from geoattn.dynamics.experiments.outcome import Check, Experiment
from geoattn.dynamics.experiments.registry import (
    FIGURES,
    Entry,
    experiment_names,
    experiment_titles,
    experiments,
    register,
    run_experiment,
)

__all__ = [
    "FIGURES",
    "Check",
    "Entry",
    "Experiment",
    "experiment_names",
    "experiment_titles",
    "experiments",
    "register",
    "run_experiment",
]
