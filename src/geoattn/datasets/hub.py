"""Data sets from the Hugging Face hub, through the library `datasets`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.datasets.catalogue import Entry
from geoattn.datasets.formats import Inputs, Labels, columns_of

__all__ = ["HubError", "hub_reachable", "only_cached", "read_hub"]


class HubError(GeoattnError):
    """The hub does not have it, or cannot be reached and the cache does not have it either."""


def read_hub(entry: Entry, split: str) -> tuple[Inputs, Labels]:
    """One split from the hub, or from the cache of an earlier download when the hub cannot be reached.

    `datasets` shows progress bars, resumes a broken download, and checks what it fetched against the sizes
    and the checksums that the repository records.
    """
    if entry.hub is None:
        raise HubError(f"{entry.title} is not on the hub.")
    try:
        import datasets
    except ImportError:
        raise HubError("the library datasets is not installed: pip install 'geoattn[hub]'.") from None
    repository, configuration = entry.hub
    try:
        with only_cached(not hub_reachable()):
            rows: Any = datasets.load_dataset(
                repository,
                configuration,
                split=entry.splits[split],
                download_config=datasets.DownloadConfig(max_retries=3),
                verification_mode="all_checks",
            )
    except Exception as error:
        raise HubError(f"{repository} on the hub: {_one_line(error)}") from None
    for column in entry.columns:
        if isinstance(rows.features.get(column), datasets.Image):
            rows = rows.cast_column(column, datasets.Image(decode=False))
    return columns_of(rows.with_format("arrow")[:], entry.columns, entry.label, repository)


def hub_reachable(timeout: float = 5.0) -> bool:
    """Whether the hub answers now. Libraries would find out too, but after half a minute of retries."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=timeout)
    except Exception:
        return False
    return True


@contextmanager
def only_cached(wanted: bool) -> Iterator[None]:
    """Within it the Hugging Face libraries look into their caches only, if ``wanted``."""
    from huggingface_hub import constants

    # datasets reads the switch once, when it is imported.
    switches: list[Any] = [m for m in (constants, sys.modules.get("datasets.config")) if m is not None]
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    for switch in switches if wanted else ():
        switch.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value


def _one_line(error: Exception) -> str:
    return str(error).split("\n")[0].strip() or type(error).__name__
