"""The modules of a model that are running, as a stack that forward hooks keep."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from threading import get_ident
from typing import Any, NamedTuple, no_type_check
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from geoattn._core.errors import GeoattnError
from geoattn.attention.clean_copies import copy_as_before, copy_without_hooks
from geoattn.attention.torch_compile import plain_python

__all__ = ["ModuleStack", "RunningModule", "in_backward", "is_own_hook", "module_names"]

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "num_head", "num_attn_heads")


def is_own_hook(hook: Any) -> bool:
    """Whether a capture has put this hook on a module, to learn where attention runs."""
    return getattr(hook, "__module__", "") == __name__


class Facts(NamedTuple):
    """What is known of a module before it runs.

    ``parameters`` are (name, position) of the positional parameters of its forward, ``heads`` is what it calls its
    number of heads.
    """

    name: str
    parameters: tuple[tuple[str, int], ...]
    heads: int | None
    batch_first: bool


class RunningModule(NamedTuple):
    """One running module, and the arguments of its forward."""

    name: str
    parameters: tuple[tuple[str, int], ...]
    heads: int | None
    batch_first: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ModuleHooks(NamedTuple):
    """The hooks of one module, and the handles of torch that remove them."""

    facts: Facts
    enter: Any
    leave: Any
    first: Any
    last: Any

    def register_again(self, module: nn.Module) -> None:
        """Put the hooks back under the numbers that they had: torch.compile guards on the numbers of hooks."""
        module._forward_pre_hooks[self.first.id] = self.enter
        module._forward_pre_hooks_with_kwargs[self.first.id] = True
        module._forward_hooks[self.last.id] = self.leave
        module._forward_hooks_always_called[self.last.id] = True


class ModuleStack:
    """Forward hooks on the modules of one model that keep ``running``, outermost first.

    The function mode is active while a module runs, and inactive outside of the model: an optimiser calls thousands of
    functions. A second run of a module by checkpointing is followed only where something changes attention.

    Hooks are those of the model, not global ones: global hooks would run for other models too, and torch.compile warns
    of them. Leaf layers of torch.nn hold no attention and get no hooks.

    The hooks of a module are the same objects in every capture, so that torch.compile finds the graph that it made in
    an earlier one. Nothing here keeps a module alive.
    """

    def __init__(
        self,
        running: list[RunningModule],
        mode: Any,
        on_begin: Callable[[nn.Module], None],
        on_leave: Callable[[], None],
        on_end: Callable[[nn.Module, Any], None],
    ) -> None:
        self.running = running
        self._mode = mode
        self._on_begin = on_begin  # a forward pass begins at this module: no other is running
        self._on_leave = on_leave
        self._on_end = on_end  # it has ended, with this output (None after an error)
        self._hooks: WeakKeyDictionary[nn.Module, ModuleHooks] = WeakKeyDictionary()
        self._modules: tuple[int, ...] = ()  # ids of the modules that were surveyed
        self._quiet: WeakSet[nn.Module] = WeakSet()
        self._thread = 0

    def attach(self, model: nn.Module) -> None:
        """Register the hooks. What is known of the modules of an earlier capture is used again."""
        modules = tuple([id(module) for module in model.modules()])
        if modules != self._modules or any(
            known.facts.heads != _heads_of(module) for module, known in self._hooks.items() if known.facts.heads
        ):
            self._survey(model)
            self._modules = modules
        for module, known in self._hooks.items():
            copy_without_hooks(module)
            if module not in self._quiet:
                known.register_again(module)

    def detach(self) -> None:
        """Remove them, and deactivate the mode if a forward pass was cut short."""
        for module, known in self._hooks.items():
            known.first.remove()
            known.last.remove()
            copy_as_before(module)
        self.running.clear()
        self._on_leave()
        _deactivate(self._mode)

    def wake(self) -> bool:
        """Give hooks to all modules again; True when some had none."""
        quiet = list(self._quiet)
        for module in quiet:
            self._hooks[module].register_again(module)
        self._quiet.clear()
        return bool(quiet)

    def quieten(self, ran: set[str], loud: set[str]) -> None:
        """Modules in which neither scores nor a softmax were made need no hooks: nothing would bear their names.

        ``ran`` are the names of modules that ran in a whole forward pass, ``loud`` those that did. The function mode
        still sees what is called inside of them.
        """
        for module, known in self._hooks.items():
            if known.facts.name in ran and known.facts.name not in loud:
                self._quiet.add(module)
                known.first.remove()
                known.last.remove()

    def _survey(self, model: nn.Module) -> None:
        """Learn what there is to know of the modules before they run, and make their hooks."""
        here = set()
        for name, module in module_names(model):
            if _is_plain_leaf(module) and module is not model:
                continue
            here.add(module)
            batch_first = vars(module).get("batch_first", getattr(type(module), "batch_first", True))
            facts = Facts(name, _parameters_of(module), _heads_of(module), bool(batch_first))
            known = self._hooks.get(module)
            if known is None or known.facts != facts:
                enter, leave = self._make_hooks(facts)
                first = module.register_forward_pre_hook(enter, with_kwargs=True)
                last = module.register_forward_hook(leave, always_call=True)
                self._hooks[module] = ModuleHooks(facts, enter, leave, first, last)
        for module in [module for module in self._hooks if module not in here]:
            del self._hooks[module]
        self._quiet.clear()

    @no_type_check  # traced by torch.compile
    def _make_hooks(self, facts: Facts) -> tuple[Any, Any]:
        name, parameters, heads, batch_first = facts
        running, mode, on_leave = self.running, self._mode, self._on_leave
        streams, hidden = mode.recorder.streams, mode.recorder.hidden

        @plain_python
        def enter(_module, args, kwargs):
            if not torch.compiler.is_compiling():
                again = in_backward()
                if again and not mode.changes:
                    return
                self._stay_in_thread(name)
                if not running and not again:
                    self._on_begin(_module)
                if hidden.is_active:
                    hidden.ran.add(name)
            if not running:
                _push_mode(mode)
            running.append(RunningModule(name, parameters, heads, batch_first, args, kwargs))
            if len(args) + len(kwargs) > 1:
                streams.enter(args, kwargs, len(running))

        @plain_python
        def leave(_module, _args, output):
            if not running or (not torch.compiler.is_compiling() and self._thread != get_ident()):
                return
            while running:  # an exception, or a capture entered in mid-forward, may leave the stack uneven
                if running[-1].name == name:
                    running.pop()
                    break
                if not any([module.name == name for module in running]):
                    break
                running.pop()
            if not running:
                if torch.compiler.is_compiling():
                    _pop_mode()
                else:
                    _deactivate(mode)
            on_leave()
            if not running and not torch.compiler.is_compiling() and not in_backward():
                self._on_end(_module, output)

        return enter, leave

    def _stay_in_thread(self, name: str) -> None:
        """The mode is active in one thread only: refuse a forward pass that runs while another one does elsewhere."""
        if not self.running:
            self._thread = get_ident()
        elif self._thread != get_ident():
            raise GeoattnError(
                f"{name!r} runs in a second thread while the model runs in another: names and maps would get mixed"
                " up; run one forward pass at a time, or capture a copy of the model in each thread."
            )


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


def _deactivate(mode: TorchFunctionMode) -> None:
    """Take the mode off the stack of function modes, whatever lies above it."""
    above = []
    while mode in _get_current_function_mode_stack():
        top = _pop_mode()
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        _push_mode(other)


def _is_plain_leaf(module: nn.Module) -> bool:
    """A layer of torch.nn without children, which calls one function and is not attention."""
    if module._modules or "forward" in vars(module) or isinstance(module, nn.MultiheadAttention):
        return False
    return type(module).__module__.startswith("torch.nn.modules.")


def _parameters_of(module: nn.Module) -> tuple[tuple[str, int], ...]:
    if "forward" in vars(module):
        return _read_signature(module.forward)
    return tuple((name, i - 1) for name, i in _class_signature(type(module)) if i > 0)


@lru_cache(maxsize=4096)  # a capture may be entered at each step
def _class_signature(kind: type[nn.Module]) -> tuple[tuple[str, int], ...]:
    return _read_signature(kind.forward)


def _read_signature(function: Callable[..., Any]) -> tuple[tuple[str, int], ...]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in signature.parameters.values() if p.kind in kinds]
    return tuple((name, i) for i, name in enumerate(names))


def _heads_of(module: nn.Module) -> int | None:
    own, kind = vars(module), type(module)
    for attribute in _HEADS:
        value = own.get(attribute, getattr(kind, attribute, None))
        if isinstance(value, property):
            value = getattr(module, attribute, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
