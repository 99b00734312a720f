"""A Ray cluster: the one that runs at an address, or one of our own on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.versions import versions

__all__ = ["check_versions", "cluster", "processors"]

_OBJECT_STORE = 256 << 20  # bytes, of a cluster of our own: results are small


@contextmanager
def cluster(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """The ``ray`` module, connected; a connection that was there before is used and kept.

    ``address`` is ``host:port`` or ``auto`` (the cluster of this machine); without one and without RAY_ADDRESS one
    with ``workers`` processors (all by default) is started here, and ended with the block.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no requests to other hosts
    try:
        import ray
    except ImportError:
        raise GeoattnError("backend ray needs Ray: pip install 'geoattn[ray]'.") from None
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None and not os.environ.get("RAY_ADDRESS"):
        options |= {"address": "local", "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
        options["num_cpus"] = workers or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0])
    elif address is not None:
        options["address"] = address
    try:
        ray.init(**options)
    except Exception as error:  # Ray has no common class for what goes wrong here
        first = str(error).strip().splitlines()
        raise GeoattnError(
            f"cannot connect to a Ray cluster at {address or os.environ.get('RAY_ADDRESS', 'this machine')}:"
            f" {first[0] if first else type(error).__name__} Start one with: ray start --head."
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def processors(ray: Any) -> int:
    """How many there are in the cluster now, at least one."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def check_versions(theirs: dict[str, str]) -> None:
    """The same numbers come from the same versions: a node with others is an error."""
    mine = versions()
    for name in ("geoattn", "numpy", "torch"):
        if theirs[name] != mine[name]:
            raise GeoattnError(
                f"a node of the cluster has {name} {theirs[name]}, this machine {mine[name]}: install the same."
            )
