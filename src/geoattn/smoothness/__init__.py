"""Attention as a map of tokens: local Lipschitz constants, bounds, worst cases."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
