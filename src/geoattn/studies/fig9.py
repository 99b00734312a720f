"""Figure 9 of the Ricci paper: curvature in BERT-Tiny trained with the variance of attention pushed up or down."""

from __future__ import annotations

from geoattn.studies.adjusted_curvature import curvature_study
from geoattn.studies.adjusted_training import TEXTS, plan

__all__ = ["STUDY"]

STUDY = curvature_study("fig9", "Figure 9 (Appendix E.1)", lambda size: plan(size, (), TEXTS, 0))
