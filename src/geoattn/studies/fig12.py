"""Figure 12 of the Ricci paper: forgetting of BERT-Tiny and ELECTRA-Small along ordered pairs of text sets."""

from __future__ import annotations

from geoattn.studies.forgetting_runs import pair_configs, text_pairs
from geoattn.studies.forgetting_study import forgetting_study

__all__ = ["STUDY"]

STUDY = forgetting_study("fig12", lambda size: pair_configs(size, text_pairs(size)), "Figure 12, Appendix E.2")
