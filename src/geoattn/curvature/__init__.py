"""Ricci curvature of graphs and attention maps, with certificates and gradients."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
