"""The modules that are running, as a stack of frames kept by hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from threading import get_ident
from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor, nn
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from geoattn.capture.compiling import plain_python
from geoattn.capture.own_code import fused_or_none
from geoattn.capture.quiet import is_plain, only_calls_others
from geoattn.errors import GeoattnError

__all__ = ["Frame", "ModuleStack", "in_backward", "module_names"]

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_WORTH_A_PAUSE = 3  # layers
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "num_head")


class Frame(NamedTuple):
    """One running module: its name, and the arguments of its forward.

    ``spots`` are (name, position) of the positional parameters, ``heads`` is what it calls its number of heads,
    ``chosen`` says whether its attention is wanted, ``on`` whether the mode is on in its own code, ``by_name`` whether
    its attention is seen by name instead. ``only_tokens``: it and the modules around it were given one tensor of
    numbers each and nothing else, no masks, no other sequence.
    """

    name: str
    spots: tuple[tuple[str, int], ...]
    heads: int | None
    batch_first: bool
    chosen: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    on: bool
    by_name: bool
    only_tokens: bool


class ModuleStack:
    """Forward hooks on the modules of one model that keep ``frames``, outermost first, and turn the mode on meanwhile.

    Hooks of this model only, not global ones: those make torch.compile warn, and would run for other models too.
    Functions are slower under a mode, so it is off outside of the model (an optimiser calls thousands), in modules
    that only call others and add up, and in groups of plain torch layers. Single plain layers get no hooks. Where a
    module makes fused attention or none, ``by_name`` (a `FusedByName`) sees it, and the mode is off too.
    """

    def __init__(
        self,
        model: nn.Module,
        frames: list[Frame],
        chosen: Callable[[str], bool],
        mode: TorchFunctionMode,
        by_name: Any,
        is_following: Callable[[], bool],
        on_leave: Callable[[], None],
    ) -> None:
        self.frames = frames
        self._model = model
        self._chosen = chosen
        self._mode = mode
        self._by_name = by_name
        self._is_following = is_following
        self._on_leave = on_leave
        self._handles: list[Any] = []
        self._thread = 0

    def attach(self) -> None:
        """Register the hooks."""
        paused: set[nn.Module] = set()
        known: dict[nn.Module, bool] = {}
        off = {child for module in self._model.modules() if only_calls_others(module) for child in _called(module)}
        for name, module in module_names(self._model):
            if module in paused:
                continue
            if not is_plain(module, known):
                enter, leave = self._hooks(name, module)
            elif sum(1 for _ in module.modules()) > _WORTH_A_PAUSE and not _has_softmax(module):
                paused.update(module.modules())
                if module in off:
                    continue
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
        self._by_name.end()
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
        spots, heads, quiet = _spots(module), _heads(module), only_calls_others(module)
        batch_first, chosen = bool(getattr(module, "batch_first", True)), self._chosen(name)
        frames, mode, on_leave, names = self.frames, self._mode, self._on_leave, self._by_name
        fused = fused_or_none(module)

        @plain_python
        def enter(_module, args, kwargs):
            on, by_name = True, False
            before = bool(frames) and frames[-1].on
            if not torch.compiler.is_compiling():
                if in_backward():
                    return
                self._stay_in_thread(name)
                by_name = fused and names.begin(name, args, kwargs, int(before))
                on = not quiet and not by_name
            if on and not before:
                _push_mode(mode)
            elif before and not on:
                if _get_current_function_mode() is mode:
                    _pop_mode()
                else:
                    on = True  # another mode lies above
            plain = (not frames or frames[-1].only_tokens) and _is_one_tensor(args, kwargs)
            frames.append(Frame(name, spots, heads, batch_first, chosen, args, kwargs, on, by_name, plain))

        @plain_python
        def leave(_module, _args, _output):
            if not torch.compiler.is_compiling() and (in_backward() or self._thread != get_ident()):
                return
            was = bool(frames) and frames[-1].on
            if fused and not torch.compiler.is_compiling():
                names.end()
            while frames:  # an exception, or a capture entered in mid-forward, may leave the stack uneven
                if frames[-1].name == name:
                    frames.pop()
                    break
                if not any(frame.name == name for frame in frames):
                    break
                frames.pop()
            now = bool(frames) and frames[-1].on
            if was and not now:
                _pop_mode()
            elif now and not was:
                _push_mode(mode)
            on_leave()

        return enter, leave

    def _stay_in_thread(self, name: str) -> None:
        """The mode is on in one thread only: refuse a forward pass that runs while another one does elsewhere."""
        if not self.frames:
            self._thread = get_ident()
        elif self._thread != get_ident():
            raise GeoattnError(
                f"{name!r} runs in a second thread while the model runs in another: names and maps would get mixed"
                " up; run one forward pass at a time, or capture a copy of the model in each thread."
            )

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


@no_type_check
def _is_one_tensor(args: Any, kwargs: Any) -> bool:
    return len(args) == 1 and len(kwargs) == 0 and isinstance(args[0], Tensor) and args[0].is_floating_point()


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """Children, and those in lists of children."""
    for child in module.children():
        yield child
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from _called(child)


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
    if "forward" in vars(module):
        return _parameters(module.forward)
    return tuple((name, i - 1) for name, i in _parameters(type(module).forward) if i > 0)


@lru_cache(maxsize=4096)  # a capture may be entered at each step
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, int], ...]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in signature.parameters.values() if p.kind in kinds]
    return tuple((name, i) for i, name in enumerate(names))


def _has_softmax(module: nn.Module) -> bool:
    return any(isinstance(inner, nn.Softmax) for inner in module.modules())


def _heads(module: nn.Module) -> int | None:
    for attribute in _HEADS:
        value = getattr(module, attribute, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
