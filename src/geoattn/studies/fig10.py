"""Figure 10 of the Ricci paper: the training loss of BERT-Tiny with the variance of attention pushed up or down."""

from __future__ import annotations

from geoattn.studies.adjusted_loss import loss_study
from geoattn.studies.adjusted_training import TEXTS, plan

__all__ = ["STUDY"]

STUDY = loss_study("fig10", "Figure 10 (Appendix E.1)", lambda size: plan(size, (), TEXTS, 0))
