"""The studies by name."""

from __future__ import annotations

from importlib import import_module

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn.studies.engine.study import Study

__all__ = ["STUDIES", "find_study"]

#: Studies by name, and where each is defined as module:name; it is loaded when asked for.
STUDIES = {
    "adjusted-lvit": "geoattn.studies.ricci.full_size:ADJUSTED_LVIT",
    "adjusted-headlines": "geoattn.studies.ricci.full_size:ADJUSTED_HEADLINES",
    "masked-lvit": "geoattn.studies.ricci.full_size:MASKED_LVIT",
    "curvature-lvit": "geoattn.studies.ricci.full_size:CURVATURE_LVIT",
    "forgetting-lvit": "geoattn.studies.ricci.full_size:FORGETTING_LVIT",
    "dose-response": "geoattn.studies.ricci.full_size:DOSE_RESPONSE",
    "strength-pilot": "geoattn.studies.ricci.full_size:STRENGTH_PILOT",
    "strength-effect": "geoattn.studies.ricci.strength_effect:STUDY",
    "pretrained-forward": "geoattn.studies.ricci.pretrained_forward:STUDY",
    "predict-errors": "geoattn.studies.prediction.predict_errors:STUDY",
    "pretrained-robustness": "geoattn.studies.ricci.pretrained_robustness:STUDY",
    "image-robustness": "geoattn.studies.ricci.image_robustness:STUDY",
    "appendix-c": "geoattn.studies.ricci.appendix_c:STUDY",
    "curvature-training": "geoattn.studies.ricci.curvature_training:STUDY",
    "fig10": "geoattn.studies.ricci.adjusted_loss:FIG10",
    "fig11": "geoattn.studies.ricci.forgetting_study:FIG11",
    "fig12": "geoattn.studies.ricci.forgetting_study:FIG12",
    "fig13": "geoattn.studies.ricci.fig13:STUDY",
    "fig14": "geoattn.studies.ricci.fig14:STUDY",
    "fig4": "geoattn.studies.ricci.adjusted_curvature:FIG4",
    "fig5": "geoattn.studies.ricci.adjusted_loss:FIG5",
    "fig6": "geoattn.studies.ricci.fig6:STUDY",
    "fig8": "geoattn.studies.ricci.forward_pass:FIG8",
    "fig9": "geoattn.studies.ricci.adjusted_curvature:FIG9",
    "section-5-1": "geoattn.studies.ricci.section_5_1:STUDY",
    "spectral-link": "geoattn.studies.ricci.spectral_link:STUDY",
    "table1": "geoattn.studies.ricci.table1:STUDY",
    "token-flow": "geoattn.studies.ricci.token_flow:STUDY",
    "lipschitz-growth": "geoattn.studies.smoothness.lipschitz_growth:STUDY",
    "pretrained-growth": "geoattn.studies.smoothness.pretrained_growth:STUDY",
    "smoothness-curvature": "geoattn.studies.smoothness.smoothness_curvature:STUDY",
    "lipschitz-training": "geoattn.studies.smoothness.lipschitz_training:STUDY",
    "mean-field": "geoattn.studies.mean_field.experiments:STUDY",
    "phase-diagram": "geoattn.studies.mean_field.phase_diagram:STUDY",
    "gradient-heads": "geoattn.studies.mean_field.gradient_heads:STUDY",
}


def find_study(name: str) -> Study:
    """A study by name.

    >>> from geoattn.studies import find_study
    >>> find_study("table1").name
    'table1'
    """
    if name not in STUDIES:
        near = did_you_mean(name, STUDIES)
        raise GeoattnError(f"unknown study {name!r}; expected one of {', '.join(STUDIES)}.{near}")
    module, _, attribute = STUDIES[name].partition(":")
    return getattr(import_module(module), attribute)
