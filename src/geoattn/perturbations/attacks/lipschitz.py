"""Tokens moved along the worst direction of an attention layer, against moves of the same size at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.attention.session import capture
from geoattn.datasets.dataset import Dataset
from geoattn.perturbations.classifier_accuracy import AccuracyDrop, accuracy_drop, class_logits, evaluating, to_device
from geoattn.smoothness.function import local_lipschitz_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LipschitzAttack", "lipschitz_attack"]

_STEPS = (0.0, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class LipschitzAttack(Displayed):
    """Accuracy drops over step sizes: along the worst direction, and along a random one of the same length.

    ``steps`` are in root mean squares of the entries of the layer's tokens. ``constants`` (b,) are the local Lipschitz
    constants of the layer at each sample, from below; ``layer`` is the name of the module.
    """

    steps: tuple[float, ...]
    worst: tuple[AccuracyDrop, ...]
    random: tuple[AccuracyDrop, ...]
    constants: Float[np.ndarray, " b"]
    layer: str
    settings: dict[str, Any] = field(default_factory=dict)

    def to_pandas(self) -> pd.DataFrame:
        """One row per direction and step."""
        import pandas as pd

        names = ("rho", "low", "high", "clean", "perturbed", "n", "broken", "repaired", "p_value")
        rows = [
            (kind, step, *(getattr(drop, name) for name in names))
            for kind, drops in (("worst", self.worst), ("random", self.random))
            for step, drop in zip(self.steps, drops, strict=True)
        ]
        return pd.DataFrame(rows, columns=pd.Index(["direction", "step", *names]))


def lipschitz_attack(
    model: nn.Module,
    dataset: Dataset,
    tokenizer: Any = None,
    *,
    layer: int = 0,
    steps: Sequence[float] = _STEPS,
    mean: Any = None,
    std: Any = None,
    level: float = 0.95,
    resamples: int = 10_000,
    tolerance: float = 1e-2,
    seed: int = 0,
) -> LipschitzAttack:
    r"""Accuracy when the tokens that enter an attention layer move where that layer is least smooth.

    .. math:: X' = X \pm \epsilon \, \mathrm{rms}(X) \sqrt{nd} \; v, \qquad v = \arg\max_{|v| = 1} |D_X f \, v|

    f is the attention module as it stands in the model, with its projections; X are its n real tokens of width d, so
    that :math:`\epsilon` is the root mean square of the move over that of the tokens. The worst direction does not
    know the label and has no sign: a sample counts as right when it is right on both sides. So it does for the random
    directions, which are what the worst one is to be compared with: where the two cost the same, the Lipschitz
    constant of the layer says nothing about the model.

    Parameters
    ----------
    layer
        Which attention call of the forward pass, from 0; negative numbers count from the end.
    steps
        Non-negative, ascending.
    tolerance
        Of the constant, relative; the direction is used whether or not it was reached. See `local_lipschitz_of`.
    seed
        Of the random directions, of the starts of the search, and of the intervals.
    mean, std, level, resamples
        As in `fgsm`.

    Notes
    -----
    Cost: about a hundred passes through the model up to the layer. Reference: Castin, Ablin and Peyre, How Smooth Is
    Attention?, 2024, for the constant.

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn.perturbations import lipschitz_attack
    >>> digits = ga.load_data("digits", split="test").subset(range(16))
    >>> result = lipschitz_attack(ga.load_model("lvit-digits"), digits, steps=(0.0, 0.5))
    >>> result.layer, result.worst[0].rho, result.constants.shape
    ('transformer.layers.0.0', 0.0, (16,))
    """
    grid = tuple(float(step) for step in steps)
    if not grid or not all(0 <= step < np.inf for step in grid) or list(grid) != sorted(set(grid)):
        raise GeoattnError(f"steps must be non-negative, ascending and different, at least one; got {tuple(steps)!r}.")
    if len(dataset) == 0:
        raise GeoattnError(f"{dataset.name} holds no sample.")
    from geoattn.datasets.feed import feed

    labels, rng = dataset.targets(), torch.Generator().manual_seed(seed)
    right: list[Tensor] = []  # (1 + 2 steps, b of the batch)
    constants, name, first = [], "", 0
    with evaluating(model):
        for raw in feed(dataset, model, tokenizer, mean=mean, std=std):
            place = _Place(model, to_device(raw, model), layer)
            name, b = place.name, len(place.start)
            found = local_lipschitz_of(place.output, place.start, samples=True, tolerance=tolerance, seed=seed)
            constants.append(np.atleast_1d(found.lower))
            worst = torch.as_tensor(found.direction, dtype=place.start.dtype, device=place.start.device)
            noise = torch.randn(place.start.shape, generator=rng).to(worst) * place.real
            want = labels[first : first + b].to(worst.device)
            first += b
            rows = [place.predict(place.start) == want]
            for direction in (worst, noise):
                for step in grid:
                    move = step * place.unit * direction / direction.flatten(1).norm(dim=1)[:, None, None]
                    rows.append(place.both_right(move, want))
            right.append(torch.stack(rows).cpu())
    clean, *after = torch.cat(right, dim=1).numpy()
    options = {"level": level, "resamples": resamples, "seed": seed}
    drops = [accuracy_drop(clean, row, **options) for row in after]
    return LipschitzAttack(
        steps=grid, worst=tuple(drops[: len(grid)]), random=tuple(drops[len(grid) :]),
        constants=np.concatenate(constants), layer=name,
        settings={
            "data": dataset.name, "split": dataset.split, "checksum": dataset.checksum, "samples": len(dataset),
            "model": type(model).__name__, "tolerance": tolerance, **options, "geoattn": __version__,
        },
    )  # fmt: skip


class _Arrived(Exception):  # noqa: N818, not an error: the forward pass has gone as far as it is needed
    pass


class _Place:
    """The input of one attention module of a model, on one batch."""

    def __init__(self, model: nn.Module, batch: dict[str, Tensor] | Tensor, layer: int) -> None:
        self.model, self.batch = model, batch
        with capture(model, inputs=True) as record, torch.no_grad():
            self.clean = class_logits(model, batch)
        if not -len(record) <= layer < len(record):
            raise GeoattnError(f"layer must be one of the {len(record)} attention calls of the model; got {layer!r}.")
        call = record[layer]
        self.name, self.start = call.name, call.tokens.detach()
        self.module = model.get_submodule(call.name)
        self.real = call.valid[..., None].to(self.start.dtype)
        entries = self.real.flatten(1).sum(1) * self.start.shape[-1]
        # rms times the root of the number of entries: the norm of the real tokens
        self.unit = (self.start * self.real).flatten(1).norm(dim=1)[:, None, None]
        if not bool((entries > 0).all()):
            raise GeoattnError("a sample has no real token.")

    def output(self, tokens: Tensor) -> Tensor:
        """What the module gives for other tokens; padding neither moves nor counts."""
        out: list[Tensor] = []

        def keep(_module: Any, _args: Any, result: Any) -> None:
            out.append(result if isinstance(result, Tensor) else result[0])
            raise _Arrived

        try:
            self._run(self.start + (tokens - self.start) * self.real, keep)
        except _Arrived:
            pass
        return out[0] * self.real

    def predict(self, tokens: Tensor) -> Tensor:
        """Classes with other tokens at the place."""
        with torch.no_grad():
            return self._run(tokens, None).argmax(-1)

    def both_right(self, move: Tensor, want: Tensor) -> Tensor:
        """Whether a sample is right on both sides of where it is."""
        return (self.predict(self.start + move) == want) & (self.predict(self.start - move) == want)

    def _run(self, tokens: Tensor, after: Any) -> Tensor:
        def swap(_module: Any, args: Any, kwargs: Any) -> Any:
            if args:
                return (tokens, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": tokens}

        hooks = [self.module.register_forward_pre_hook(swap, with_kwargs=True)]
        if after is not None:
            hooks.append(self.module.register_forward_hook(after))
        try:
            return class_logits(self.model, self.batch)
        finally:
            for hook in hooks:
                hook.remove()
