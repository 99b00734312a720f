"""L-ViT, the small vision transformer of the Ricci paper."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError

__all__ = ["LViT", "LViTConfig"]

# forward is not type-checked in tests: torch.compile cannot look through the checker.


@dataclass(frozen=True)
class LViTConfig:
    """The sizes of an L-ViT. The defaults are Appendix D.1 of the Ricci paper, for MNIST.

    What the appendix leaves open follows the defaults of vit-pytorch: heads of width 64, and the class token
    as output. One head of the width of the model has no output projection there, so L-ViT has none.

    Examples
    --------
    >>> from geoattn.models import LViTConfig
    >>> LViTConfig().tokens, LViTConfig(image_size=32, patch_size=8, channels=3).tokens
    (17, 17)
    """

    image_size: int = 28
    patch_size: int = 7
    channels: int = 1
    classes: int = 10
    dim: int = 64
    depth: int = 8
    heads: int = 1
    dim_head: int = 64
    mlp_dim: int = 128
    dropout: float = 0.1
    emb_dropout: float = 0.1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if "dropout" in field.name:
                good, expected = (
                    isinstance(value, (int, float)) and 0 <= value < 1,
                    "a number with 0 <= p < 1",
                )
            else:
                good, expected = (
                    isinstance(value, int) and not isinstance(value, bool) and value > 0,
                    "a positive integer",
                )
            if not good:
                raise GeoattnError(f"LViTConfig: {field.name} must be {expected}; got {value!r}.")
        if self.image_size % self.patch_size:
            raise GeoattnError(
                f"LViTConfig: image_size must be a multiple of patch_size; got {self.image_size} and {self.patch_size}."
            )

    @classmethod
    def from_dict(cls, parts: dict[str, Any]) -> LViTConfig:
        """A configuration from its parts by name; an unknown name is an error."""
        unknown = set(parts) - {field.name for field in fields(cls)}
        if unknown:
            names = ", ".join(field.name for field in fields(cls))
            raise GeoattnError(f"L-ViT has no setting {', '.join(sorted(unknown))}; it has {names}.")
        return cls(**parts)

    def as_dict(self) -> dict[str, Any]:
        """Every part by name, for files."""
        return asdict(self)

    @property
    def tokens(self) -> int:
        """Tokens of one image: the patches and the class token."""
        return (self.image_size // self.patch_size) ** 2 + 1


class Patches(nn.Module):
    """Cuts images into patches, row by row; within a patch row, column, then channel."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @no_type_check
    def forward(self, images: Tensor) -> Tensor:
        """(b, c, height, width) -> (b, patches, size * size * c)."""
        p = self.size
        b, c, height, width = images.shape
        cut = images.reshape(b, c, height // p, p, width // p, p).permute(0, 2, 4, 3, 5, 1)
        return cut.reshape(b, (height // p) * (width // p), p * p * c)


class Attention(nn.Module):
    """Self-attention after LayerNorm: q, k, v without bias, scale 1/sqrt(d), dropout on the weights."""

    def __init__(self, config: LViTConfig) -> None:
        super().__init__()
        inner = config.heads * config.dim_head
        self.heads, self.dropout = config.heads, config.dropout
        self.norm = nn.LayerNorm(config.dim)
        self.to_qkv = nn.Linear(config.dim, 3 * inner, bias=False)
        one_head_of_full_width = config.heads == 1 and config.dim_head == config.dim
        self.to_out = (
            nn.Identity()
            if one_head_of_full_width
            else nn.Sequential(nn.Linear(inner, config.dim), nn.Dropout(config.dropout))
        )

    @no_type_check
    def forward(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> (b, n, dim)."""
        b, n, _ = x.shape
        q, k, v = self.to_qkv(self.norm(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        out = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))


class FeedForward(nn.Module):
    """LayerNorm, Linear, GELU, Linear, with dropout after each of the last two."""

    def __init__(self, config: LViTConfig) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(config.dim),
            nn.Linear(config.dim, config.mlp_dim),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.mlp_dim, config.dim),
            nn.Dropout(config.dropout),
        )

    @no_type_check
    def forward(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> (b, n, dim)."""
        return self.net(x)


class Encoder(nn.Module):
    """Residual blocks of attention and feed-forward, then a LayerNorm."""

    def __init__(self, config: LViTConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.dim)
        self.layers = nn.ModuleList(
            nn.ModuleList([Attention(config), FeedForward(config)]) for _ in range(config.depth)
        )

    @no_type_check
    def forward(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> (b, n, dim)."""
        for layer in self.layers:
            attention, feed_forward = layer  # pyright: ignore[reportGeneralTypeIssues]
            x = attention(x) + x
            x = feed_forward(x) + x
        return self.norm(x)


class LViT(nn.Module):
    """A vision transformer with the architecture and the parameter names of vit-pytorch's ``ViT``.

    Patches -> LayerNorm, Linear, LayerNorm -> class token in front -> learned positions -> pre-norm blocks ->
    LayerNorm -> Linear on the class token. A ``state_dict`` of ``vit_pytorch.ViT`` (1.26) of the same sizes
    loads as it is, and both give the same output; from the same seed of torch both start with the same
    weights and drop the same entries. vit-pytorch is Phil Wang's (MIT licence).

    Each block calls ``F.scaled_dot_product_attention`` once, with q, k, v of shape (b, heads, n, d).

    Examples
    --------
    >>> import torch
    >>> from geoattn.models import LViT
    >>> model = LViT().eval()
    >>> model(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    >>> sum(p.numel() for p in model.parameters())
    238316
    """

    takes_raw_pixels = True  # in [0, 1], not normalised

    def __init__(self, config: LViTConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or LViTConfig()
        patch = config.channels * config.patch_size**2
        self.to_patch_embedding = nn.Sequential(
            Patches(config.patch_size),
            nn.LayerNorm(patch),
            nn.Linear(patch, config.dim),
            nn.LayerNorm(config.dim),
        )
        self.cls_token = nn.Parameter(torch.randn(1, config.dim))
        self.pos_embedding = nn.Parameter(torch.randn(config.tokens, config.dim))
        self.dropout = nn.Dropout(config.emb_dropout)
        self.transformer = Encoder(config)
        self.mlp_head = nn.Linear(config.dim, config.classes)

    @no_type_check
    def forward(self, images: Float[Tensor, "b channels height width"]) -> Float[Tensor, "b classes"]:
        """Logits of the classes. Pixels lie in [0, 1]."""
        c = self.config
        if images.shape[1:] != (c.channels, c.image_size, c.image_size):
            raise GeoattnError(
                f"this L-ViT takes images of shape (b, {c.channels}, {c.image_size}, {c.image_size}); "
                f"got {tuple(images.shape)}."
            )
        x = self.to_patch_embedding(images)
        x = torch.cat((self.cls_token.expand(len(x), 1, -1), x), dim=1)
        x = self.transformer(self.dropout(x + self.pos_embedding))
        return self.mlp_head(x[:, 0])
