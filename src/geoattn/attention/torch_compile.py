"""The one place that knows the internals of torch.compile.

Hooks and the function mode are traced when they run inside a compiled function: the graph then hands the
captured tensors out, and names are known when it is built. When they run outside of it, as the hooks of the
outermost module do, they are plain Python and must not become graphs of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, no_type_check

__all__ = ["is_compiled", "plain_python", "runs_compiled_graph", "runs_compiled_kernel", "unwrapped"]

F = TypeVar("F", bound=Callable[..., Any])


def unwrapped(module: Any) -> Any:
    """The model that ``torch.compile(model)`` wraps; any other module as it is."""
    return getattr(module, "_orig_mod", module)


def plain_python(function: F) -> F:
    """Never compile this function, nor what it calls, on its own; it may still be traced inside another."""
    try:
        from torch._C._dynamo import eval_frame

        if hasattr(eval_frame, "set_code_exec_strategy"):  # torch >= 2.7 or so
            skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
            eval_frame.set_code_exec_strategy(function.__code__, skip)
        else:
            eval_frame.skip_code(function.__code__)  # pyright: ignore[reportAttributeAccessIssue]
    except (ImportError, AttributeError):  # only speed is lost
        pass
    return function


@no_type_check  # a check would put frames of its own between
def runs_compiled_graph(depth: int) -> bool:
    """True when the caller ``depth`` frames up is a graph that torch.compile made.

    Only backend="eager" and "aot_eager" run it in Python. What it does was seen when it was traced.
    """
    frame = sys._getframe(depth + 1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith("_ops.py"):  # kernels are called through it
        frame = frame.f_back
    if not frame.f_code.co_filename.startswith("<eval_with_key>"):
        return False
    above = frame.f_back
    while above is not None:
        if above.f_code.co_filename.endswith("eval_frame.py"):
            return True
        above = above.f_back
    return False


@no_type_check
def is_compiled(module: Any) -> bool:
    """True when torch.compile was asked to compile the module, a part of it, or what calls it.

    A dispatch mode would keep such code from ever being compiled.
    """
    if any(part._compiled_call_impl is not None or "_orig_mod" in part._modules for part in module.modules()):
        return True
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("eval_frame.py"):
            return True
        frame = frame.f_back
    return False


@no_type_check
def runs_compiled_kernel() -> bool:
    """True in code that Inductor or AOTAutograd made: it calls the kernels of functions that were seen before."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if "_inductor" in name or "_aot_autograd" in name or name.startswith("<eval_with_key>"):
            return True
        frame = frame.f_back
    return False
