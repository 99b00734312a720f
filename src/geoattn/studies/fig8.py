"""Figure 8 of the Ricci paper: curvature of the first and last layer of ViT, DeiT, BERT-Tiny and ELECTRA-Small."""

from __future__ import annotations

from functools import partial

from geoattn.studies.forward_pass import configs, figure, table, verdict
from geoattn.studies.study import Study

__all__ = ["STUDY"]

STUDY = Study(
    "fig8",
    1,
    "geoattn.studies.trained_models:trial",
    partial(configs, models=("vit-b16", "deit-b16", "bert-tiny", "electra-small")),
    table,
    figure,
    verdict,
    paper="ricci",
    place="Figure 8, Appendix B",
    how="Models trained on each data set, curvature of all heads of the first and the last layer on fixed test rows;"
    " differences within a run, interval over seeds.",
)
