"""Figure 5 of the Ricci paper: the training loss of L-ViT with the variance of attention pushed up or down."""

from __future__ import annotations

from geoattn.studies.adjusted_loss import loss_study
from geoattn.studies.adjusted_training import IMAGES, plan

__all__ = ["STUDY"]

STUDY = loss_study("fig5", "Figure 5", lambda size: plan(size, IMAGES, (), 10))
