"""What listens to the attention of one model: captures, and interventions that change it.

All of them share one stack of modules, one function mode and one tracker. These are kept as long as the model lives,
so that a second capture does not build them anew and torch.compile does not compile anew.
"""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from geoattn.attention.call_recorder import CallRecorder
from geoattn.attention.check import CaptureWarning
from geoattn.attention.function_mode import AttentionMode
from geoattn.attention.module_stack import ModuleStack
from geoattn.attention.refusals import in_reentrant

__all__ = ["ModelWatch", "watch_model"]

_watches: WeakKeyDictionary[nn.Module, ModelWatch] = WeakKeyDictionary()


def watch_model(model: nn.Module) -> ModelWatch:
    """The one watch of a model."""
    if model not in _watches:
        _watches[model] = ModelWatch()
    return _watches[model]


class ModelWatch:
    """The hooks and the mode are attached while there is a listener or a change.

    A listener has ``receive(item)``, see `CallRecorder`, ``inputs`` (bool) and ``wanted`` (names of modules; None: all
    of them). A change has ``is_active(name)``, see `geoattn.attention.changes`. Both have ``begin(module)`` and
    ``end(module, output)``, which are called when a forward pass begins and ends.
    """

    def __init__(self) -> None:
        self.recorder = CallRecorder()
        self.mode = AttentionMode(self.recorder)
        self.stack = ModuleStack(self.recorder.running, self.mode, self._begin, self.recorder.leave, self._end)
        self.sound: set[str] = set()  # routes whose self-check found nothing
        self._choices: dict[frozenset[str], frozenset[str]] = {}

    def listen(self, model: nn.Module, listener: Any) -> None:
        """Tell this listener of all calls from now on."""
        self._attach(model)
        self.recorder.listeners.append(listener)
        self._update()

    def change(self, model: nn.Module, change: Any) -> None:
        """Let this change act on all calls from now on."""
        self._attach(model)
        self.mode.changes.append(change)

    def remove(self, member: Any) -> None:
        """Forget a listener or a change; the last one takes the hooks with it."""
        for members in (self.recorder.listeners, self.mode.changes):
            members[:] = [other for other in members if other is not member]
        self._update()
        if not self.recorder.listeners and not self.mode.changes:
            self.recorder.hidden.stop()
            self.recorder.caches.clear()
            self.stack.detach()

    def _attach(self, model: nn.Module) -> None:
        if not self.recorder.listeners and not self.mode.changes:
            self.stack.attach(model)

    def _update(self) -> None:
        """What the listeners want, all of them together."""
        recorder, listeners = self.recorder, self.recorder.listeners
        recorder.with_inputs = any(listener.inputs for listener in listeners)
        wanted = None
        if listeners and all(listener.wanted is not None for listener in listeners):
            names = frozenset(name for listener in listeners for name in listener.wanted)
            wanted = self._choices.setdefault(names, names)  # the same object again, for torch.compile
        recorder.wanted = wanted

    def _begin(self, module: nn.Module) -> None:
        self.recorder.had_gradients = torch.is_grad_enabled() or in_reentrant()
        if self.recorder.listeners and self.recorder.hidden.start(module):
            self.stack.wake()
        for member in (*self.recorder.listeners, *self.mode.changes):
            member.begin(module)

    def _end(self, module: nn.Module, output: Any) -> None:
        hidden = self.recorder.hidden
        if hidden.stop() and output is not None:
            self.stack.quieten(hidden.ran, hidden.loud)
        elif self.recorder.surprise:
            name, self.recorder.surprise = self.recorder.surprise, ""
            if self.stack.wake():
                warnings.warn(
                    f"attention, or another product or softmax, ran inside {name!r} where none ran before; in this"
                    " forward pass it bears the name of that module, in later ones its own.",
                    CaptureWarning,
                    stacklevel=2,
                )
        self.recorder.end(module)
        for member in (*self.recorder.listeners, *self.mode.changes):
            member.end(module, output)
