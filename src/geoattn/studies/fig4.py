"""Figure 4 of the Ricci paper: curvature in L-ViT trained with the variance of attention pushed up or down."""

from __future__ import annotations

from geoattn.studies.adjusted_curvature import curvature_study
from geoattn.studies.adjusted_training import IMAGES, plan

__all__ = ["STUDY"]

STUDY = curvature_study("fig4", "Figure 4", lambda size: plan(size, IMAGES, (), 10))
