"""All registered kinds of perturbations. Importing this module registers those of images and of texts."""

from geoattn.perturbations import images, text
from geoattn.perturbations.perturbation import PERTURBATIONS

__all__ = ["PERTURBATIONS", "images", "text"]
