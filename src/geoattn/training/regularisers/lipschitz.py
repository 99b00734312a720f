"""The local Lipschitz constant of a sample of heads, put into the loss."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.arguments import read_choice, read_count, read_number
from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.attention.call import Call
from geoattn.attention.record import Record
from geoattn.smoothness.lanczos import largest_singular
from geoattn.training.attachments import register_attachment
from geoattn.training.distributed import current, mean_over_samples
from geoattn.training.regularisers.contract import Penalty, Regulariser
from geoattn.training.regularisers.draw import draw_samples
from geoattn.training.strength import read_weight

__all__ = ["LipschitzRegulariser"]

_MAX_BASIS = 32  # Lanczos vectors on each side


@register_attachment("lipschitz")
class LipschitzRegulariser(Regulariser):
    r"""Adds :math:`\pm\gamma\,\bar\sigma` to the loss, the mean local Lipschitz constant of a sample of heads.

    A head is the map :math:`X \mapsto \big(\sum_j P_{ij} v_j\big)_i` of the tokens X that its module reads, with the
    model's own norms, biases, places and masks; without dropout, residual and output projection. Its local constant
    :math:`\sigma = \|D_X f\|_2` is the largest singular value of the derivative. With the singular vectors
    :math:`u, v` the gradient is exact,

    .. math:: \frac{\partial\sigma}{\partial\theta} = \Big\langle u, \frac{\partial (D_X f)}{\partial\theta}\,v
              \Big\rangle

    where :math:`\sigma` is simple. The vectors come from Golub-Kahan-Lanczos steps; products with :math:`D_X f` and
    its transpose are automatic differentiation of the graph of the forward pass, so any attention that
    `geoattn.capture` reads will do.

    Parameters
    ----------
    direction
        ``decrease`` (default) or ``increase``.
    gamma
        Weight, above 0; or ``strength=``, as in the other regularisers.
    heads
        How many heads at tokens of one sample to draw in each step: as many from each layer as from the others, of
        layers in random order; the draw depends on ``seed`` and the step alone. ``"all"``: every head of every sample.
    tolerance, steps
        Lanczos steps end at this residual, relative to the value, or after so many. A value is never above the true
        one; the error of its gradient is of the order of the residual.

    Notes
    -----
    Cost: two to three backward passes through the projections of the chosen layers for each Lanczos step, some 10 steps
    at the default tolerance. Self-attention only. In evaluation mode, or without gradients, there is nothing to
    differentiate, and no figure.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import LipschitzRegulariser
    >>> model = geoattn.models.LViT()
    >>> with LipschitzRegulariser(gamma=0.1, heads=2).attach(model) as handle:
    ...     loss = model(torch.rand(4, 1, 28, 28)).square().mean() + handle.penalty()
    ...     loss.backward()
    ...     figures = handle.figures()
    >>> round(figures["penalty"] / figures["lipschitz"], 3)
    0.1
    """

    reads_inputs = True

    def __init__(
        self,
        direction: Any = "decrease",
        gamma: Any = None,
        *,
        strength: Any = None,
        adapt: Any = False,
        heads: Any = 4,
        tolerance: Any = 1e-3,
        steps: Any = 30,
        seed: Any = 0,
    ) -> None:
        self.direction = read_choice("direction", direction, ("decrease", "increase"))
        self.gamma, self.strength = read_weight(gamma, strength, adapt, default=0.01)
        self.heads = None if heads == "all" else read_count("heads", heads, least=1, instead="'all' or ")
        self.tolerance, self.steps = read_number("tolerance", tolerance, above=0.0), read_count("steps", steps, least=1)
        self.seed = read_count("seed", seed, least=0)
        self._warned = False

    def penalise(self, record: Record, step: int) -> Penalty:
        """The penalty of one forward pass, and the mean and largest constant of the sampled heads."""
        calls = [call for call in record if call.kind == "self" and call.shape[2] == call.shape[3]]
        if not calls:
            raise GeoattnError("the local constant of a head needs self-attention, and this forward pass had none.")
        device = calls[0].tokens.device
        calls = [call for call in calls if call.tokens.requires_grad]  # not those of frozen layers below
        if not calls:
            self._warn_of_no_gradient()
            return Penalty(torch.zeros((), device=device))
        draw = np.random.default_rng([self.seed, step])
        values: list[Tensor] = []
        taken = 0
        for place, k in enumerate(draw.permutation(len(calls))):
            call, share = calls[k], None
            if self.heads is not None:
                share = self.heads // len(calls) + (place < self.heads % len(calls))
            sample, head, _ = draw_samples(call, share, draw, least=1)
            start = int(draw.integers(2**31))
            if len(sample) == 0:  # in this process: the others have drawn the same
                continue
            for one in range(call.shape[1]) if head is None else (head,):
                found, used = self._constants(call, torch.from_numpy(sample), one, start)
                values.append(found.to(device))
                taken = max(taken, used)
        all_ = torch.cat(values) if values else torch.zeros(0, device=device, requires_grad=True)
        mean = mean_over_samples(all_)
        largest = float(all_.detach().max()) if values else 0.0
        processes = current()
        if processes is not None:
            largest, taken = (max(part) for part in zip(*processes.gather((largest, taken)), strict=True))
        figures = {"lipschitz": mean.detach(), "lipschitz_max": largest, "lanczos_steps": float(taken)}
        return Penalty((self.gamma if self.direction == "decrease" else -self.gamma) * mean, figures)

    def _warn_of_no_gradient(self) -> None:
        """Say once that the tokens of all layers come from frozen ones, so that their constants have no gradient."""
        if torch.is_grad_enabled() and not self._warned:
            self._warned = True
            warnings.warn(
                "LipschitzRegulariser did nothing: the tokens of no attention layer have a gradient. Train a layer"
                " below one of them, such as the embeddings.",
                GeoattnWarning, stacklevel=4,
            )  # fmt: skip

    def _constants(self, call: Call, sample: Tensor, head: int, seed: int) -> tuple[Tensor, int]:
        """Local constants (k,) of a head at the tokens of k samples, with gradients, and Lanczos steps."""
        tokens = call.tokens
        with torch.enable_grad(), torch._C.DisableTorchFunction():  # an open capture must not see this
            place = sample.to(tokens.device)
            value = call.value[place.to(call.value.device), head // (call.shape[1] // call.value.shape[1])]
            out = call.attention(sample=sample, head=head)[:, 0] @ value.to(tokens.device)
            kind = torch.float64 if out.dtype == torch.float64 else torch.float32
            dummy = torch.zeros_like(out).requires_grad_()
            (pulled,) = torch.autograd.grad(out, tokens, dummy, create_graph=True)
            linear = pulled[place]  # D f^T u as a linear function of u
            size = linear[0].numel()

            def apply(v: Tensor) -> Tensor:
                moves = v.view(linear.shape).to(linear.dtype)
                (image,) = torch.autograd.grad(linear, dummy, moves, retain_graph=True)
                return image.flatten(1).to(kind)

            def adjoint(u: Tensor) -> Tensor:
                (back,) = torch.autograd.grad(out, tokens, u.view(out.shape).to(out.dtype), retain_graph=True)
                return back[place].flatten(1).to(kind)

            random = torch.Generator().manual_seed(seed)

            def fresh() -> Tensor:
                one = torch.randn(1, size, generator=random, dtype=torch.float64).to(tokens.device, kind)
                return one.expand(len(sample), -1)

            basis = max(2, min(_MAX_BASIS, self.steps, size, out[0].numel()))
            found = largest_singular(
                apply, adjoint, fresh, tolerance=self.tolerance, floor=1e-12, steps=self.steps, basis=basis
            )
            right = found.right / found.right.norm(dim=1, keepdim=True).clamp_min(1e-30)
            left = apply(right)
            left = left / left.norm(dim=1, keepdim=True).clamp_min(1e-30)
            upstream = left.view(out.shape).to(out.dtype)
            (back,) = torch.autograd.grad(out, tokens, upstream, create_graph=True)
            values = (back[place] * right.view(linear.shape).to(back.dtype)).flatten(1).sum(1)
        return values, int(found.steps.max())
