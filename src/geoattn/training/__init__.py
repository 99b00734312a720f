"""Training with the geometry of attention: regularisers, interventions, a monitor, a loop."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
