"""With what a number was made: versions and platform, without times and paths."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from geoattn._version import __version__

__all__ = ["versions"]


@cache
def versions() -> dict[str, str]:
    """Versions of what decides numbers, and the platform; quick, as nothing is imported.

    >>> sorted(versions())
    ['geoattn', 'numpy', 'platform', 'python', 'torch']
    """
    found = {"geoattn": __version__}
    for name in ("numpy", "torch"):
        try:
            found[name] = version(name).split("+")[0]
        except PackageNotFoundError:
            found[name] = "none"
    return found | {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
