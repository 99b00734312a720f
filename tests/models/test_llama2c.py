import os
import random
import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.models.llama2c import _read_pieces, load_llama2c

# What llama2.c itself prints for this model, greedy, 200 steps: the text that its own test expects.
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
    "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She said, "
    "\"I want to play with your ball, but I can't find it.\"\nLily was sad and didn't know what to do. "
    "She said, \"I'm sorry, Lily. I didn't know what to do.\"\nLily didn't want to help her mom, so she"
)


@pytest.fixture(scope="module")
def folder():
    root = os.environ.get("GEOATTN_DATA")
    if not root or not (Path(root) / "stories260K").is_dir():
        pytest.skip("set GEOATTN_DATA to a folder with stories260K in it to run this test")
    return Path(root) / "stories260K"


@pytest.fixture(scope="module")
def loaded(folder):
    return load_llama2c(folder)


def test_sizes(loaded):
    c = loaded[0].config
    assert (c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, c.hidden_size) == (5, 8, 4, 64)
    assert sum(p.numel() for p in loaded[0].parameters()) == 260_032
    assert not loaded[0].training


def test_tells_the_story_of_llama2c(loaded):
    model, tokenizer = loaded
    prompt = tokenizer("Once upon a time", return_tensors="pt")
    out = model.generate(
        input_ids=prompt.input_ids, attention_mask=prompt.attention_mask, max_new_tokens=195, do_sample=False
    )
    text = tokenizer.decode(out[0], skip_special_tokens=True)
    assert text[: len(STORY)] == STORY[: len(text)]
    assert len(text) > 0.95 * len(STORY)


def encode_like_llama2c(text, pieces):
    """Merge the best pair again and again, as run.c does."""
    table = {}
    for i, (piece, _) in enumerate(pieces):
        table.setdefault(piece, i)
    ids = []
    for character in " " + text:
        raw = character.encode()
        ids += [table[raw]] if raw in table else [byte + 3 for byte in raw]
    while True:
        pairs = [(pieces[a][0] + pieces[b][0], i) for i, (a, b) in enumerate(pairwise(ids))]
        good = [(-pieces[table[piece]][1], i, table[piece]) for piece, i in pairs if piece in table]
        if not good:
            return [1, *ids]
        _, i, merged = min(good)
        ids[i : i + 2] = [merged]


def test_tokenizer_equals_llama2c(folder, loaded):
    tokenizer, pieces = loaded[1], _read_pieces(folder / "tok512.bin", 512)
    words = [piece.decode("utf-8", "replace") for piece, _ in pieces[259:]]
    generator = random.Random(0)
    texts = [
        "Once upon a time",
        STORY,
        "  two  blanks ",
        "héllo ☃ \n\t x",
        "",
        "aaaa oooo llll",
        "Zażółć 1234 <s>"[:10],
    ]
    texts += ["".join(generator.choices(words, k=12)) for _ in range(100)]
    for text in texts:
        ids = tokenizer(text).input_ids
        if text:
            assert ids == encode_like_llama2c(text, pieces), text
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_padding(loaded):
    model, tokenizer = loaded
    batch = tokenizer(["Once", "Once upon a time there"], return_tensors="pt", padding=True)
    assert batch.attention_mask.sum(1).tolist() == [2, len(tokenizer("Once upon a time there").input_ids)]
    with torch.no_grad():
        alone = model(**{k: v for k, v in tokenizer("Once", return_tensors="pt").items() if k != "token_type_ids"})
        together = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    torch.testing.assert_close(together.logits[0, :2], alone.logits[0], atol=1e-5, rtol=0)


def spoiled(folder, tmp_path, name, change):
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / name
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))
    return tmp_path / "copy"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("stories260K.bin", lambda d: d[:-4], r"expected 1,056,540 bytes from its header; got 1,056,536"),
        ("stories260K.bin", lambda d: d[:10], "too short"),
        ("stories260K.bin", lambda d: struct.pack("<i", 7) + d[4:], "not a model of llama2.c, version 0"),
        ("tok512.bin", lambda d: d[:-30], r"expected 512 tokens .* it ends after 5\d\d"),
        ("tok512.bin", lambda d: d + b"x", "not the tokenizer of a model with 512 tokens"),
    ],
)
def test_bad_files(folder, tmp_path, name, change, message):
    with pytest.raises(GeoattnError, match=message) as raised:
        load_llama2c(spoiled(folder, tmp_path, name, change))
    assert "\n" not in str(raised.value)


def test_bad_folders(tmp_path):
    with pytest.raises(GeoattnError, match="no such folder"):
        load_llama2c(tmp_path / "nowhere")
    with pytest.raises(GeoattnError, match=r"expected one model .* got 0 and 0"):
        load_llama2c(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"0")
    with pytest.raises(GeoattnError, match=r"expected the folder .*; got the file .*model\.bin: give '.*'\."):
        load_llama2c(tmp_path / "model.bin")


@pytest.mark.parametrize("byte", [b"<0x00>", b"\0"])
def test_byte_tokens_of_newer_and_of_older_files(tmp_path, byte):
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", byte, *[bytes([k]) for k in range(1, 256)], b"once"]
    data = struct.pack("<i", 6) + b"".join(struct.pack("<fi", 0.0, len(p)) + p for p in pieces)
    (tmp_path / "tok.bin").write_bytes(data)
    assert _read_pieces(tmp_path / "tok.bin", 260)[-1] == (b"once", 0.0)
