"""Data sets: local files, the hub, the embedded digits, files of attention maps."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
