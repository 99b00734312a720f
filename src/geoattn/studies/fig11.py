"""Figure 11 of the Ricci paper: forgetting of ViT and DeiT along ordered pairs of image sets."""

from __future__ import annotations

from geoattn.studies.forgetting_runs import image_pairs, pair_configs
from geoattn.studies.forgetting_study import forgetting_study

__all__ = ["STUDY"]

STUDY = forgetting_study("fig11", lambda size: pair_configs(size, image_pairs(size)), "Figure 11, Appendix E.2")
