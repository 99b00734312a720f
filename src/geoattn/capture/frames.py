"""The modules that are running, as a stack of frames kept by hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, no_type_check

import torch
from torch import nn
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from geoattn.capture.compiling import plain_python

__all__ = ["Frame", "ModuleStack", "in_backward", "module_names"]

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_WORTH_A_PAUSE = 3  # layers
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "num_head")


class Frame(NamedTuple):
    """One running module: its name, and the arguments of its forward.

    ``spots`` are (name, position) of the positional parameters, ``heads`` is what it calls its number of heads,
    ``chosen`` says whether its attention is wanted.
    """

    name: str
    spots: tuple[tuple[str, int], ...]
    heads: int | None
    batch_first: bool
    chosen: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ModuleStack:
    """Forward hooks on the modules of one model that keep ``frames``, outermost first, and turn the mode on meanwhile.

    Hooks of this model only, not global ones: those make torch.compile warn, and would run for other models too.
    Functions are slower under a mode, so it is off outside of the model (an optimiser calls thousands) and in
    groups of plain torch layers, which cannot hold attention. Single plain layers get no hooks.
    """

    def __init__(
        self,
        model: nn.Module,
        frames: list[Frame],
        chosen: Callable[[str], bool],
        mode: TorchFunctionMode,
        is_following: Callable[[], bool],
        on_leave: Callable[[], None],
    ) -> None:
        self.frames = frames
        self._model = model
        self._chosen = chosen
        self._mode = mode
        self._is_following = is_following
        self._on_leave = on_leave
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Register the hooks."""
        paused: set[nn.Module] = set()
        for name, module in module_names(self._model):
            if module in paused:
                continue
            if not _is_plain(module):
                enter, leave = self._hooks(name, module)
            elif sum(1 for _ in module.modules()) > _WORTH_A_PAUSE:
                paused.update(module.modules())
                enter, leave = self._pauses()
            else:
                continue
            self._handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            self._handles.append(module.register_forward_hook(leave, always_call=True))

    def detach(self) -> None:
        """Remove them, forget the frames, and turn the mode off if a forward pass was cut short."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.frames.clear()
        above = []
        while self._mode in _get_current_function_mode_stack():
            mode = _pop_mode()
            if mode is self._mode:
                break
            above.append(mode)
        for mode in reversed(above):
            _push_mode(mode)

    @no_type_check  # traced by torch.compile
    def _hooks(self, name: str, module: nn.Module) -> tuple[Any, Any]:
        spots, heads = _spots(module), _heads(module)
        batch_first, chosen = bool(getattr(module, "batch_first", True)), self._chosen(name)
        frames, mode, on_leave = self.frames, self._mode, self._on_leave

        @plain_python
        def enter(_module, args, kwargs):
            if torch.compiler.is_compiling() or not in_backward():
                if not frames:
                    _push_mode(mode)
                frames.append(Frame(name, spots, heads, batch_first, chosen, args, kwargs))

        @plain_python
        def leave(_module, _args, _output):
            if not torch.compiler.is_compiling() and in_backward():
                return
            running = len(frames)
            while frames:  # an exception, or a capture entered in mid-forward, may leave the stack uneven
                if frames[-1].name == name:
                    frames.pop()
                    break
                if not any(frame.name == name for frame in frames):
                    break
                frames.pop()
            if running and not frames:
                _pop_mode()
            on_leave()

        return enter, leave

    @no_type_check
    def _pauses(self) -> tuple[Any, Any]:
        mode, is_following, paused = self._mode, self._is_following, []

        @plain_python
        def enter(_module, _args, _kwargs):
            if not torch.compiler.is_compiling():
                pause = _get_current_function_mode() is mode and not is_following()
                paused.append(pause)
                if pause:
                    _pop_mode()

        @plain_python
        def leave(_module, _args, _output):
            if not torch.compiler.is_compiling() and paused and paused.pop():
                _push_mode(mode)

        return enter, leave


def _is_plain(module: nn.Module) -> bool:
    """True for layers of torch.nn without attention, and for modules that do nothing but call such layers."""
    children = dict(module.named_children())
    if isinstance(module, nn.MultiheadAttention) or not all(_is_plain(child) for child in children.values()):
        return False
    if "forward" in vars(module) or type(module).__call__ is not nn.Module.__call__:
        return False  # somebody's own way to call it
    if type(module).__module__.startswith("torch.nn.modules."):
        return True
    code = getattr(type(module).forward, "__code__", None)  # `return self.net(x)`: no name but that of a child
    return code is not None and code.co_argcount == 2 and not code.co_freevars and {*code.co_names} <= {*children}


def in_backward() -> bool:
    """True while the backward pass runs: checkpointing then runs modules a second time."""
    return torch._C._current_graph_task_id() != -1


def module_names(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules with the names that a user knows: without the wrappers of compile, FSDP, DDP and checkpointing.

    The model itself, whose own name is empty, goes by the name of its class.
    """
    parallel = isinstance(model, nn.parallel.DistributedDataParallel)
    for full, module in model.named_modules():
        parts = [part for part in full.split(".") if part and part not in _WRAPPERS]
        if parallel:
            parts = parts[1:]
        yield ".".join(parts) or type(module).__name__, module


def _spots(module: nn.Module) -> tuple[tuple[str, int], ...]:
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in signature.parameters.values() if p.kind in kinds]
    return tuple((name, i) for i, name in enumerate(names))


def _heads(module: nn.Module) -> int | None:
    for attribute in _HEADS:
        value = getattr(module, attribute, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
