"""Models: L-ViT, a zoo of configurations, and loading from folders and the hub."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
