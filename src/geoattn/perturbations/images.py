"""Perturbations of images: flip, blur, rotation, elastic, perspective (Appendix D.2 of the Ricci paper)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.perturbations.perturbation import Perturbation, read_share, register_perturbation

__all__ = ["Blur", "Elastic", "Flip", "ImagePerturbation", "Perspective", "Rotation", "elastic_displacement"]

# Images are (c, h, w) in [0, 1]; what comes in from outside the image is 0, black. Warps by kornia.
Image = Float[Tensor, "c h w"]


@dataclass(frozen=True)
class ImagePerturbation(Perturbation):
    """The base of perturbations that hit an image with probability ``p``.

    A subclass gives `parameters` and `apply`. Images are (c, height, width) with values in [0, 1].

    Examples
    --------
    A perturbation of your own draws parameters and applies them:

    >>> import torch
    >>> from dataclasses import dataclass
    >>> from geoattn.perturbations import ImagePerturbation, perturb
    >>> @dataclass(frozen=True)
    ... class Darker(ImagePerturbation):
    ...     least: float = 0.5
    ...     kind = "darker"
    ...
    ...     def parameters(self, rng, height, width):
    ...         return {"factor": float(rng.uniform(self.least, 1))}
    ...
    ...     def apply(self, sample, parameters):
    ...         return sample * parameters["factor"]
    >>> result = perturb(torch.ones(4, 1, 2, 2), Darker(0.5), seed=0)
    >>> result.name, bool((result.images[result.hit] < 1).all()), bool((result.images[~result.hit] == 1).all())
    ('darker 0.5', True, True)
    """

    medium: ClassVar[Literal["images", "texts"]] = "images"
    p: float

    def __post_init__(self) -> None:
        read_share(type(self).__name__, "p", self.p)

    @property
    def name(self) -> str:
        """Kind and probability."""
        return f"{self.kind} {self.p:g}"

    def draw(self, rng: np.random.Generator, sample: Image) -> dict[str, Any] | None:
        """The coin first, then the parameters, so that these do not depend on ``p``."""
        coin = rng.random()
        return self.parameters(rng, *sample.shape[-2:]) if coin < self.p else None

    @abstractmethod
    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        """Of one image of this size."""


@register_perturbation
@dataclass(frozen=True)
class Flip(ImagePerturbation):
    """The mirror image, left and right exchanged (``horizontal``) or top and bottom. The paper does not say which.

    Examples
    --------
    >>> from geoattn.perturbations import Flip
    >>> Flip(0.2).name, Flip(0.2).settings
    ('flip 0.2', {'kind': 'flip', 'p': 0.2, 'direction': 'horizontal'})
    """

    kind: ClassVar[str] = "flip"
    direction: str = "horizontal"  # or "vertical"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction not in ("horizontal", "vertical"):
            raise GeoattnError(f"Flip: direction must be 'horizontal' or 'vertical'; got {self.direction!r}.")

    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        """Nothing is drawn."""
        return {"direction": self.direction}

    def apply(self, sample: Image, parameters: dict[str, Any]) -> Image:
        """Exact."""
        return sample.flip(-1 if parameters["direction"] == "horizontal" else -2)


@register_perturbation
@dataclass(frozen=True)
class Blur(ImagePerturbation):
    """Gaussian blur of a standard deviation drawn uniformly from ``sigma``, in pixels; the image reflected at its
    border. The paper gives no sigma; this range is the default of torchvision.

    Examples
    --------
    >>> import torch
    >>> from geoattn.perturbations import Blur, perturb
    >>> result = perturb(torch.eye(5)[None, None], Blur(1.0), seed=0)
    >>> round(result.parameters[0]["blur"]["sigma"], 3), bool(result.images.max() < 0.3)
    (1.916, True)
    """

    kind: ClassVar[str] = "blur"
    sigma: tuple[float, float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (len(self.sigma) == 2 and 0 < self.sigma[0] <= self.sigma[1] < math.inf):
            raise GeoattnError(f"Blur: sigma must be (low, high) with 0 < low <= high; got {self.sigma!r}.")

    def for_size(self, size: int, reference: int = 28) -> Blur:
        """The same blur for another size of image: sigma grows with the size."""
        return Blur(self.p, (self.sigma[0] * size / reference, self.sigma[1] * size / reference))

    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        """Its sigma."""
        return {"sigma": float(rng.uniform(*self.sigma))}

    def apply(self, sample: Image, parameters: dict[str, Any]) -> Image:
        """Cut off at 4 sigma."""
        sigma = parameters["sigma"]
        return gaussian(sample, sigma, math.ceil(4 * sigma)).clamp(0, 1)


@register_perturbation
@dataclass(frozen=True)
class Rotation(ImagePerturbation):
    """Rotation about the centre by an angle drawn uniformly from -degrees to degrees, bilinear. The paper gives no
    angle; 30 is a choice.

    Examples
    --------
    >>> import torch
    >>> from geoattn.perturbations import Rotation, perturb
    >>> result = perturb(torch.eye(5)[None, None], Rotation(1.0, degrees=30.0), seed=0)
    >>> round(result.parameters[0]["rotation"]["degrees"], 2)  # positive is counter-clockwise
    -11.68
    """

    kind: ClassVar[str] = "rotation"
    degrees: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.degrees <= 180:
            raise GeoattnError(f"Rotation: degrees must lie between 0 and 180; got {self.degrees!r}.")

    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        """The angle; positive is counter-clockwise."""
        return {"degrees": float(rng.uniform(-self.degrees, self.degrees))}

    def apply(self, sample: Image, parameters: dict[str, Any]) -> Image:
        """By kornia."""
        from kornia.geometry.transform import rotate

        angle = torch.tensor([parameters["degrees"]], dtype=sample.dtype)
        return rotate(sample[None], angle, align_corners=True)[0].clamp(0, 1)


@register_perturbation
@dataclass(frozen=True)
class Perspective(ImagePerturbation):
    """Each corner moves inwards by at most ``distortion`` times half the image, along both axes; uniformly, by kornia.

    (torchvision draws whole pixels from the same range.)

    Examples
    --------
    >>> import torch
    >>> from geoattn.perturbations import Perspective, perturb
    >>> result = perturb(torch.ones(1, 1, 9, 9), Perspective(1.0), seed=0)
    >>> len(result.parameters[0]["perspective"]["corners"]), bool(result.images.mean() < 1)  # black comes in
    (4, True)
    """

    kind: ClassVar[str] = "perspective"
    p: float = 0.5
    distortion: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        read_share("Perspective", "distortion", self.distortion)

    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        """How far the corners move, (x, y) in pixels: top left, top right, bottom right, bottom left."""
        inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
        most = self.distortion * np.array([width, height]) / 2
        return {"corners": tuple(map(tuple, (rng.random((4, 2)) * most * inwards).tolist()))}

    def apply(self, sample: Image, parameters: dict[str, Any]) -> Image:
        """The homography that moves the corners, bilinear."""
        from kornia.geometry.transform import get_perspective_transform, warp_perspective

        height, width = sample.shape[-2:]
        corners = torch.tensor([[0.0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], dtype=sample.dtype)
        moved = corners + torch.tensor(parameters["corners"], dtype=sample.dtype)
        matrix = get_perspective_transform(corners[None], moved[None])
        return warp_perspective(sample[None], matrix, (height, width))[0].clamp(0, 1)


@register_perturbation
@dataclass(frozen=True)
class Elastic(ImagePerturbation):
    r"""A smooth random field moves the pixels, in the units of torchvision's ``ElasticTransform``.

    .. math:: \Delta(x) = \frac{\alpha}{s} (G_\sigma * \eta)(x), \quad \eta \text{ uniform on } [-1, 1]

    in coordinates where the image of s pixels spans [-1, 1], so that a pixel moves by
    :math:`\frac{\alpha}{2} G_\sigma * \eta` pixels: not by alpha, and whatever the size of the image. Well inside a
    large image the root mean square along each axis is :math:`\alpha / (4 \sqrt{3 \pi} \sigma)`, 1.22 pixels for
    alpha = 75 and sigma = 5; it is twice that in the corners, where the field is reflected. kornia's alpha is in
    [-1, 1] coordinates: it gets alpha / s (75 itself would move the pixels by many times the image), and the smoothed
    field, because it pads with zeros where torchvision reflects.

    Examples
    --------
    >>> from geoattn.perturbations import Elastic
    >>> Elastic().name
    'elastic alpha=75'
    """

    kind: ClassVar[str] = "elastic"
    p: float = 1.0
    alpha: float = 75.0
    sigma: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.alpha < math.inf and 0 < self.sigma < math.inf):
            raise GeoattnError(f"Elastic: alpha >= 0 and sigma > 0 expected; got {self.alpha!r} and {self.sigma!r}.")

    @property
    def name(self) -> str:
        """Kind, alpha, and p unless it is 1."""
        return f"elastic alpha={self.alpha:.4g}" + ("" if self.p == 1 else f" {self.p:g}")

    def for_size(self, size: int, reference: int = 28) -> Elastic:
        """The same deformation for another size of image: sigma grows with the size, alpha with its square.

        At 8 x 8 pixels sigma 5 is a shift of the whole image by up to half of it; `for_size` (8) is what MNIST sees.
        """
        scale = size / reference
        return Elastic(self.p, self.alpha * scale**2, self.sigma * scale)

    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        """A seed for the field, and the size of the field in pixels: root mean square per axis, and largest."""
        seed = int(rng.integers(2**63))
        field = self._field(seed, height, width) * torch.tensor([width, height])[:, None, None] / 2
        return {
            "alpha": self.alpha,
            "sigma": self.sigma,
            "seed": seed,
            "rms_pixels": float(field.square().mean().sqrt()),
            "max_pixels": float(field.square().sum(0).sqrt().max()),
        }

    def apply(self, sample: Image, parameters: dict[str, Any]) -> Image:
        """Sampled by kornia, with the field given: a kernel of one pixel smooths nothing more."""
        from kornia.geometry.transform import elastic_transform2d

        field = self._field(parameters["seed"], *sample.shape[-2:]).to(sample.dtype)
        moved = elastic_transform2d(sample[None], field[None], kernel_size=(1, 1), sigma=(1.0, 1.0), alpha=(1.0, 1.0))
        return moved[0].clamp(0, 1)

    def _field(self, seed: int, height: int, width: int) -> Float[Tensor, "2 h w"]:
        noise = np.random.default_rng(seed).uniform(-1, 1, (2, height, width))
        return elastic_displacement(torch.from_numpy(noise), self.alpha, self.sigma)


def elastic_displacement(noise: Float[Tensor, "2 h w"], alpha: float, sigma: float) -> Float[Tensor, "2 h w"]:
    """The field of `Elastic` from its noise: x, then y, in coordinates where the image spans [-1, 1].

    The kernel has 8 sigma + 1 points, made odd, as torchvision has it.
    """
    radius = int(8 * sigma + 1) // 2
    height, width = noise.shape[-2:]
    return gaussian(noise, sigma, radius) * alpha / torch.tensor([width, height], dtype=noise.dtype)[:, None, None]


def gaussian(image: Image, sigma: float, radius: int) -> Image:
    """Gaussian blur with ``2 radius + 1`` points, as two products with matrices.

    The image is reflected at its border (without repeating the edge) as often as it takes: torch and kornia refuse a
    radius as large as the image. O(c h w (h + w)).
    """
    rows, columns = (_blur_matrix(size, sigma, radius).to(image.dtype) for size in image.shape[-2:])
    return rows @ image @ columns.T


def _blur_matrix(size: int, sigma: float, radius: int) -> Float[Tensor, "s s"]:
    steps = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (steps.double() / sigma) ** 2)
    weights = weights / weights.sum()
    period = max(1, 2 * (size - 1))
    place = (torch.arange(size)[:, None] + steps) % period
    place = torch.minimum(place, period - place) if size > 1 else torch.zeros_like(place)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, place, weights.expand(size, -1))
