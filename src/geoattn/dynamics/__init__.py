"""Attention as a flow of tokens on the sphere: simulation, energies, clusters, mean fields."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
