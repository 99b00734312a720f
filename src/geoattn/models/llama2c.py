"""Models in the format of llama2.c, such as stories260K, as Llama of transformers."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geoattn._core.errors import GeoattnError
from geoattn._core.read_limit import check_need

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

__all__ = ["load_llama2c"]

_HEADER = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
_LAYER = 60_000  # bytes that Python takes for a layer without weights
_BYTES_FROM, _BYTES_TO = 3, 259  # tokens of single bytes, after <unk>, <s>, </s>


def load_llama2c(folder: str | os.PathLike[str]) -> tuple[LlamaForCausalLM, Any]:
    """The model and the tokenizer of a folder with ``<name>.bin`` and ``tok<number>.bin``.

    The file (version 0) is seven int32 (width, hidden width, layers, heads, key/value heads, vocabulary,
    context; a negative vocabulary means a classifier of its own) and the weights in float32. llama2.c rotates
    neighbouring entries (2i, 2i + 1) of q and k, transformers rotates entries (i, i + d/2): their rows are
    reordered, which leaves every attention map as it is.

    Examples
    --------
    A model of width 2 with weights of zero and the tokens of single bytes:

    >>> import pathlib, struct, tempfile
    >>> import geoattn as ga
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "tiny.bin").write_bytes(struct.pack("<7i", 2, 1, 1, 1, 1, 259, 2) + bytes(4 * 550))
    >>> pieces = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    >>> tokens = b"".join(struct.pack("<fi", 0.0, len(piece)) + piece for piece in pieces)
    >>> _ = (folder / "tok259.bin").write_bytes(struct.pack("<i", 6) + tokens)
    >>> model, tokenizer = ga.models.load_llama2c(folder)
    >>> tokenizer("Hi").input_ids, model.config.hidden_size
    ([1, 35, 75, 108], 2)
    """
    folder = Path(folder)
    if folder.is_file():
        raise GeoattnError(
            f"expected the folder of the model and its tokenizer (tok*.bin); got the file {folder}: give"
            f" {str(folder.parent)!r}."
        )
    if not folder.is_dir():
        raise GeoattnError(f"no such folder: {folder}")
    models = sorted(p for p in folder.glob("*.bin") if not p.name.startswith("tok"))
    tokenizers = sorted(folder.glob("tok*.bin"))
    if len(models) != 1 or len(tokenizers) != 1:
        raise GeoattnError(
            f"{folder}: expected one model (*.bin) and one tokenizer (tok*.bin) in the format of llama2.c; "
            f"got {len(models)} and {len(tokenizers)}."
        )
    model = _read_model(models[0])
    return model, _read_tokenizer(tokenizers[0], model.config.vocab_size)


def _read_model(path: Path) -> LlamaForCausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    data = path.read_bytes()
    size = struct.calcsize(f"<{len(_HEADER)}i")
    if len(data) < size:
        raise GeoattnError(f"{path} is too short for a model of llama2.c; get it again.")
    header = dict(zip(_HEADER, struct.unpack_from(f"<{len(_HEADER)}i", data), strict=True))
    shared, header["vocab_size"] = header["vocab_size"] > 0, abs(header["vocab_size"])
    d, layers, heads, kv = (header[k] for k in ("dim", "n_layers", "n_heads", "n_kv_heads"))
    if min(header.values()) < 1 or d % heads or heads % kv or (d // heads) % 2:
        raise GeoattnError(f"{path} is not a model of llama2.c, version 0: its header says {header}.")
    hidden, width, rotary = header["hidden_dim"], d // heads, header["seq_len"] * (d // heads) // 2
    shapes = {
        "embed": (header["vocab_size"], d), "norm1": (layers, d), "q": (layers, d, d),
        "k": (layers, kv * width, d), "v": (layers, kv * width, d), "o": (layers, d, d), "norm2": (layers, d),
        "gate": (layers, hidden, d), "down": (layers, d, hidden), "up": (layers, hidden, d), "norm": (d,),
        "cos": (rotary,), "sin": (rotary,),
    }  # fmt: skip
    if not shared:
        shapes["head"] = (header["vocab_size"], d)
    expected = size + 4 * sum(math.prod(shape) for shape in shapes.values())
    if len(data) != expected:
        raise GeoattnError(f"{path}: expected {expected:,} bytes from its header; got {len(data):,}. Get it again.")
    check_need(path, 4 * len(data) + _LAYER * layers, f"{layers:,} layers")
    w, offset = {}, size
    for name, shape in shapes.items():
        count = math.prod(shape)
        w[name] = torch.from_numpy(np.frombuffer(data, "<f4", count, offset).reshape(shape).copy())
        offset += 4 * count
    config = LlamaConfig(
        vocab_size=header["vocab_size"], hidden_size=d, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=header["seq_len"],
        rms_norm_eps=1e-5, tie_word_embeddings=shared, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    state = {"model.embed_tokens.weight": w["embed"], "model.norm.weight": w["norm"]}
    state["lm_head.weight"] = w["embed"] if shared else w["head"]
    for i in range(layers):
        state |= {
            f"model.layers.{i}.{name}.weight": value
            for name, value in {
                "input_layernorm": w["norm1"][i],
                "post_attention_layernorm": w["norm2"][i],
                "self_attn.q_proj": _halves(w["q"][i], heads),
                "self_attn.k_proj": _halves(w["k"][i], kv),
                "self_attn.v_proj": w["v"][i],
                "self_attn.o_proj": w["o"][i],
                "mlp.gate_proj": w["gate"][i],
                "mlp.up_proj": w["up"][i],
                "mlp.down_proj": w["down"][i],
            }.items()
        }
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    model.generation_config.pad_token_id = 0
    return model.eval()


def _halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head from (0, 1, 2, 3, ...) to (0, 2, ..., 1, 3, ...)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _read_tokenizer(path: Path, vocab_size: int) -> Any:
    """Byte-pair encoding that merges the pair of the best score first; what has no token becomes bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = _read_pieces(path, vocab_size)
    names = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    names += [text.decode("utf-8", "replace") for text, _ in pieces[_BYTES_TO:]]
    vocabulary = {name: i for i, name in reversed(list(enumerate(names)))}  # the first of equal pieces counts
    merges = []
    for i, (_, score) in enumerate(pieces[_BYTES_TO:], _BYTES_TO):
        pairs = ((names[i][:k], names[i][k:]) for k in range(1, len(names[i])))
        merges += [(-score, i, pair) for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
    bpe = models.BPE(vocabulary, [pair for *_, pair in sorted(merges)], unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Prepend(" ")  # type: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.Sequence(  # type: ignore[reportAttributeAccessIssue]
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[reportAttributeAccessIssue]
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<unk>",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def _read_pieces(path: Path, vocab_size: int) -> list[tuple[bytes, float]]:
    """(text, score) of each token: after one int32, a float32 score, an int32 length and the bytes.

    The first byte token is written ``<0x00>`` by newer versions of llama2.c and as the byte itself by older ones.
    """
    data, offset, pieces = path.read_bytes(), 4, []
    try:
        for _ in range(vocab_size):
            score, length = struct.unpack_from("<fi", data, offset)
            offset += 8
            if not 0 <= length <= len(data) - offset:
                raise ValueError
            pieces.append((data[offset : offset + length], score))
            offset += length
    except (struct.error, ValueError):
        raise GeoattnError(
            f"{path}: expected {vocab_size} tokens in the format of llama2.c; it ends after {len(pieces)}."
        ) from None
    if offset != len(data) or len(pieces) < _BYTES_TO or pieces[_BYTES_FROM][0] not in (b"<0x00>", b"\0"):
        raise GeoattnError(f"{path} is not the tokenizer of a model with {vocab_size} tokens.")
    return pieces
