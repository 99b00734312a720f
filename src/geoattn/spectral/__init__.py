"""Attention as a Markov kernel: eigenvalues, and the inequalities that tie them to curvature."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
