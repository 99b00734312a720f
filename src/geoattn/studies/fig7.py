"""Figure 7 of the Ricci paper: forgetting along one pair of image sets and one of text sets."""

from __future__ import annotations

from typing import Any

from geoattn.studies.forgetting_runs import pair_configs
from geoattn.studies.forgetting_study import forgetting_study

__all__ = ["STUDY"]

# The caption of the figure; Appendix E.2 has CIFAR-10, then MNIST, and Headlines, then SST-2.
_PAIRS = [("cifar10", "fashion-mnist"), ("sst2", "headlines")]
_SMOKE = [("digits", "digits-inverted"), ("made-up-mood", "made-up-animal")]


def _configs(size: str) -> list[dict[str, Any]]:
    digits = [("digits", "digits-turned")] if size == "small" else []
    return pair_configs(size, _SMOKE if size == "smoke" else [*digits, *_PAIRS])


STUDY = forgetting_study("fig7", _configs, "Figure 7, Section 5")
