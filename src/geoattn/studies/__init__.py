"""The studies: a figure or a table of the papers each, and the ledger of claims."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
