"""The grc presets compute what those versions of GraphRicciCurvature compute."""

import json
from pathlib import Path

import numpy as np
import pytest

import geoattn as ga

FOLDER = Path(__file__).parent / "references"
VERSIONS = {"0.5.3.2": "grc-0.5", "0.6.1": "grc-0.6"}
REFERENCES = {version: json.loads((FOLDER / f"grc-{version}.json").read_text())["graphs"] for version in VERSIONS}

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_edge_of_every_reference_graph(version: str) -> None:
    compared = 0
    with np.load(FOLDER / "grc-graphs.npz") as graphs:
        for name, reference in REFERENCES[version].items():
            i, j = np.array(reference["edges"]).T
            for alpha, expected in reference["kappa"].items():
                convention = ga.Convention.of(VERSIONS[version]).but(alpha=float(alpha))
                kappa = ga.ollivier_ricci(graphs[name], convention).kappa[i, j]
                np.testing.assert_allclose(kappa, expected, rtol=1e-12, atol=1e-12, err_msg=f"{name}, alpha {alpha}")
                compared += len(expected)
    assert compared > 5000
