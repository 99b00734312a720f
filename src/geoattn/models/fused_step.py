"""L-ViT for training on a processor: the same model, with blocks of the native kernel in training mode."""

from __future__ import annotations

from typing import no_type_check

from torch import nn
from torch.nn import functional

from geoattn.models.fused_attention import Values
from geoattn.models.fused_blocks import (
    FusedFeedForward,
    FusedProjection,
    draw_seed,
    drops_some,
    fits,
    is_unheard,
    threshold,
)
from geoattn.models.lvit import Attention, FeedForward
from geoattn.models.quick_dropout import with_quick_dropout

__all__ = ["FastAttention", "FastFeedForward", "with_fused_step"]


class FastAttention(Attention):
    """`geoattn.models.lvit.Attention` with its LayerNorm and projection in the native kernel in training mode.

    The attention itself is ``F.scaled_dot_product_attention``, which capture and regularisers see; it goes to the
    kernel unless they change it, see `geoattn.models.fused_attention.Values`.
    """

    def __init__(self, plain: Attention) -> None:
        nn.Module.__init__(self)
        self.heads, self.dropout = plain.heads, plain.dropout
        self.norm, self.to_qkv, self.to_out = plain.norm, plain.to_qkv, plain.to_out
        self.training = plain.training  # layers inside may be in another mode

    @no_type_check
    def forward(self, x):
        """(b, n, dim) -> (b, n, dim)."""
        norm, linear = self.norm, self.to_qkv
        whole_strips = linear.out_features % (16 * 3 * self.heads) == 0
        if not (self.training and linear.bias is None and whole_strips and fits(x, norm, linear)):
            return super().forward(x)
        q, k, v = FusedProjection.apply((norm.eps, self.heads), x, norm.weight, norm.bias, linear.weight)
        out = functional.scaled_dot_product_attention(q, k, v.as_subclass(Values), dropout_p=self.dropout)
        return self.to_out(out.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class FastFeedForward(FeedForward):
    """`geoattn.models.lvit.FeedForward` as one step of the native kernel in training mode."""

    def __init__(self, plain: FeedForward) -> None:
        nn.Module.__init__(self)
        self.net = plain.net
        self.training = plain.training  # layers inside may be in another mode

    @no_type_check
    def forward(self, x):
        """(b, n, dim) -> (b, n, dim)."""
        norm, first, gelu, inner, second, outer = self.net
        known = (
            type(gelu) is nn.GELU and gelu.approximate == "none" and first.bias is not None and second.bias is not None
        )
        alone = all(is_unheard(module) for module in (self.net, gelu, inner, outer))
        if not (self.training and known and alone and drops_some(inner, outer) and fits(x, norm, first, second)):
            return super().forward(x)
        drops = [threshold(module.p) if module.training else 0 for module in (inner, outer)]
        settings = (norm.eps, draw_seed() if any(drops) else 0, *drops)
        parameters = (norm.weight, norm.bias, first.weight, first.bias, second.weight, second.bias)
        return FusedFeedForward.apply(settings, x, *parameters)


def with_fused_step(model: nn.Module) -> nn.Module:
    """The model itself, with each attention and feed-forward block of L-ViT replaced by its fused form.

    Parameters, their names, the state dict and evaluation mode stay as they are. A training step computes the same
    function up to rounding, and drops entries with the same probability, rounded to a multiple of 2^-16, but others
    than `torch.nn.Dropout` drops from the same seed. The dropouts outside these blocks become
    `geoattn.models.quick_dropout.QuickDropout`.

    The fused form is for contiguous float32 tensors of a processor, under no autocast and no ``torch.compile``, with
    widths that are multiples of 16 and without hooks on the layers inside. Any other call runs the plain block. There
    is no second derivative: asking for one, as the Lipschitz regulariser does, is an error.

    Examples
    --------
    >>> import torch
    >>> from geoattn.models import LViT, fused_step
    >>> model = fused_step.with_fused_step(LViT())
    >>> model(torch.rand(2, 1, 28, 28)).sum().backward()
    >>> list(model.state_dict()) == list(LViT().state_dict())
    True
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is Attention:
                setattr(parent, name, FastAttention(child))
            elif type(child) is FeedForward:
                setattr(parent, name, FastFeedForward(child))
    return with_quick_dropout(model)
