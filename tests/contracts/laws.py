"""The laws of lenses and of perturbations; those of attachments are in tests/training/attachment_laws.py."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import torch

import geoattn as ga


def lens_laws(lens: str | ga.profiles.Lens) -> None:
    """Data in one batch or in three give the same rows, and a lens survives pickle."""
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4)
    pixels, name = digits.pixels(), lens if isinstance(lens, str) else lens.name

    def rows(batches: list[torch.Tensor]) -> list[tuple[Any, ...]]:
        table = ga.profile(
            model, batches, lenses=lens, resamplings=50, edges=8, smoothness_samples=2, examples=0
        ).to_pandas()
        mine = table[table.lens.astype(str).str.startswith(name)]
        assert len(mine), f"the lens {name} gives no rows"
        columns = ["layer", "head", "lens", "statistic", "value"]
        return [(*(str(v) for v in row[:4]), row[4]) for row in zip(*(mine[c] for c in columns), strict=True)]

    whole, parts = rows([pixels]), rows([pixels[:1], pixels[1:2], pixels[2:]])
    assert [row[:4] for row in whole] == [row[:4] for row in parts]
    np.testing.assert_allclose([row[4] for row in whole], [row[4] for row in parts], rtol=1e-5, atol=1e-7)
    if not isinstance(lens, str):
        assert pickle.loads(pickle.dumps(lens)).name == name


def perturbation_laws(perturbation: Any, samples: Any) -> None:
    """Equal seeds give equal results, a part is perturbed as in the whole, and the input stays as it was."""
    kept = samples.clone() if isinstance(samples, torch.Tensor) else list(samples)
    one, two = (ga.perturbations.perturb(samples, perturbation, seed=3) for _ in range(2))
    same(one, two)
    rows = np.arange(len(samples))
    part = ga.perturbations.perturb(samples[2:], perturbation, seed=3, rows=rows[2:])
    assert part.parameters == one.parameters[2:]
    assert (part.hit == one.hit[2:]).all()
    assert not (one.changed & ~one.hit).any(), "a sample that was left alone has changed"
    if isinstance(samples, torch.Tensor):
        assert torch.equal(torch.as_tensor(kept), samples)
    else:
        assert kept == list(samples)
    assert perturbation.name
    assert perturbation.settings["kind"]


def same(one: ga.perturbations.Perturbed, two: ga.perturbations.Perturbed) -> None:
    assert one.parameters == two.parameters
    assert one.texts == two.texts
    if one.images is not None and two.images is not None:
        assert torch.equal(one.images, two.images)
