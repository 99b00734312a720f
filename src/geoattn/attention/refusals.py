"""Models, tensors and kernels that capture refuses, because their attention would be recorded wrongly."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, no_type_check

import torch
from torch import nn
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import CheckpointFunction

from geoattn._core.errors import GeoattnError

__all__ = ["KERNELS", "in_reentrant", "kernel_complaint", "refuse_model", "refuse_reentrant", "refuse_tensor"]

KERNELS = (HigherOrderOperator, OpOverload, OpOverloadPacket)
_ATTENTION = ("attn", "fmha", "flash")  # words in the names of kernels
_HIDDEN = ("flash", "flex", "paged", "kernels-community")


def refuse_model(model: Any) -> None:
    """Raise for a model whose attention runs where no function mode sees it."""
    if not isinstance(model, nn.Module):
        raise GeoattnError(f"capture needs a torch.nn.Module; got {type(model).__name__}.")
    for name, module in model.named_modules():
        config = module.__dict__.get("config")
        if config is None and not _is_closed(type(module)):  # nearly all modules
            continue
        where = f" (at {name!r})" if name else ""
        if isinstance(module, nn.DataParallel):
            raise GeoattnError(
                f"nn.DataParallel{where} runs the model in threads that capture does not see; capture"
                " model.module on one device, or use DistributedDataParallel."
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise GeoattnError(
                f"a TorchScript module{where} runs outside of Python; capture the model it was made from."
            )
        kind = getattr(config, "_attn_implementation", None)
        if isinstance(kind, str) and any(word in kind for word in _HIDDEN):
            raise GeoattnError(
                f"attention implementation {kind!r}{where} shows neither its weights nor its masks; call"
                " model.set_attn_implementation('sdpa') before the capture."
            )


@lru_cache(maxsize=4096)
def _is_closed(kind: type) -> bool:
    """Whether modules of this class run where no function mode sees them."""
    return issubclass(kind, (nn.DataParallel, torch.jit.ScriptModule))


def refuse_reentrant(name: str) -> None:
    """Raise inside reentrant checkpointing: it runs the forward pass without gradients, then once more."""
    if in_reentrant():
        raise GeoattnError(
            f"{name!r} runs under reentrant checkpointing, which cuts attention from its gradients;"
            " set use_reentrant=False (Hugging Face:"
            " gradient_checkpointing_enable({'use_reentrant': False}))."
        )


def in_reentrant() -> bool:
    """True inside reentrant checkpointing. O(frames on the stack)."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is CheckpointFunction.forward.__code__:
            return True
        frame = frame.f_back
    return False


@no_type_check  # traced by torch.compile
def refuse_tensor(x: Any, name: str) -> None:
    """Raise for tensors that mean something else once the function they are in has ended, or have no shape."""
    if x.is_nested:
        raise GeoattnError(f"{name!r} uses nested tensors, which capture cannot read; pad the batch.")
    if x.device.type == "meta" and not torch.compiler.is_compiling():
        raise GeoattnError(
            f"{name!r} runs on the meta device, where tensors have no numbers; move the model to a device."
        )
    if torch.compiler.is_compiling():
        return
    if isinstance(x, FakeTensor):
        raise GeoattnError(
            f"{name!r} runs in FakeTensorMode, where tensors have no numbers; run it outside of the mode."
        )
    if not torch._C._are_functorch_transforms_active():
        return
    if torch._C._functorch.is_batchedtensor(x):
        raise GeoattnError(f"{name!r} runs under torch.vmap, which hides the batch from capture; give it a batch.")


@no_type_check  # traced by torch.compile
def kernel_complaint(func: Any, name: str) -> str | None:
    """What to say of a kernel that the mode sees but that does not show which weights it used."""
    title = str(func)
    words = title.lower().replace(".", "_").split("_")
    if "attention" in title.lower() or any(word in words for word in _ATTENTION):
        return (
            f"{name!r} uses the kernel {title}, which does not show its masks; use"
            " scaled_dot_product_attention for the capture (Hugging Face: model.set_attn_implementation('sdpa'))."
        )
    return None
