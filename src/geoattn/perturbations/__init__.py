"""Perturbed images and texts, attacks, and what they cost a model."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
