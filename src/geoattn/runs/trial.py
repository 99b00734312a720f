"""A trial: a named function of a configuration, done with one thread so that its sums have one order everywhere."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.runs.outcome import Outcome

__all__ = ["THREAD_SETTINGS", "Trial", "do_trial", "find_trial", "one_thread", "workspace"]

Trial = Callable[[dict[str, Any]], Any]
#: What libraries read when they are loaded.
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def find_trial(name: str) -> Trial:
    """The function behind ``module:function``.

    >>> find_trial("geoattn.studies.ricci.table1:trial").__name__
    'trial'
    """
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError):
        raise GeoattnError(f"no trial function {name!r}; expected module:function.") from None


_workspace: ContextVar[Path | None] = ContextVar("workspace", default=None)


def workspace() -> Path | None:
    """Folder in which the running trial may keep a checkpoint, to go on after a kill; None: there is none.

    The folder belongs to this trial alone and goes when the trial is done. A result must not depend on it.
    """
    return _workspace.get()


def do_trial(function: Trial, config: dict[str, Any], folder: Path | None = None) -> Outcome:
    """Do a trial; whatever it raises is an outcome, as one bad trial must not stop the rest.

    ``folder`` becomes its `workspace`.
    """
    token, start = _workspace.set(folder), time.process_time()
    try:
        with one_thread():
            return Outcome(function(config), None, round(time.process_time() - start, 1))
    except (Exception, SystemExit) as error:
        return Outcome(None, f"{type(error).__name__}: {error}")
    finally:
        _workspace.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and BLAS inside it.

    Sums of floats depend on how they are split: with one thread a trial gives the same bits on any number of cores and
    beside any number of workers. Cores are used by workers, not by threads.
    """
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    torch: Any = sys.modules.get("torch")
    threads = None if torch is None else torch.get_num_threads()
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, "1"))  # for libraries that the trial loads first
    if torch is not None:
        torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if torch is not None:
            torch.set_num_threads(threads)
