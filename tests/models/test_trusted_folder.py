"""Folders with models from strangers: what names code, or is code, is refused, and nothing of it runs."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from geoattn._core.errors import GeoattnError
from geoattn.models.loading import load_model, load_tokenizer

BERT = {
    "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "vocab_size": 12, "max_position_embeddings": 16,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose files all try to leave a mark when they are run."""
    model = tmp_path / "model"
    load_model(_plain(tmp_path / "plain"), weights="random").save_pretrained(model)
    code = f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\nclass Evil: pass\nEvilConfig = EvilTokenizer = Evil\n"
    for name in ("evil", "modeling_evil", "configuration_evil", "tokenization_evil", "custom_generate/generate"):
        path = model / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    (model / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    return model


def _plain(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(BERT))
    return folder


def edit(path: Path, **changes: Any) -> None:
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **changes}))


def refused(words: str, call: Any, folder: Path) -> None:
    with pytest.raises(GeoattnError, match=words) as raised:
        call(folder)
    assert "\n" not in str(raised.value)
    assert not (folder.parent / "ran").exists()


def test_the_folder_itself_is_fine(folder: Path) -> None:
    assert load_model(folder).config.hidden_size == 8
    assert load_tokenizer(folder)("a").input_ids == [2, 5, 3]
    assert not (folder.parent / "ran").exists()


@pytest.mark.parametrize("kind", ["bert", "evil"])
@pytest.mark.parametrize("weights", ["pretrained", "random"])
def test_auto_map_of_a_model(folder: Path, kind: str, weights: Any) -> None:
    names = {"AutoConfig": "configuration_evil.EvilConfig", "AutoModel": "modeling_evil.Evil"}
    edit(folder / "config.json", model_type=kind, auto_map=names)
    refused(r"names code of its own \(auto_map\)", lambda f: load_model(f, weights=weights), folder)


def test_auto_map_inside_a_part(folder: Path) -> None:
    edit(folder / "config.json", text_config={"auto_map": {"AutoModel": "stranger/repository--modeling_evil.Evil"}})
    refused(r"names code of its own \(auto_map\)", load_model, folder)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "preprocessor_config.json", "processor_config.json"])
def test_auto_map_beside_the_model(folder: Path, file: str) -> None:
    edit(folder / file, auto_map={"AutoTokenizer": ["tokenization_evil.EvilTokenizer", None]})
    refused(rf"{file} names code of its own \(auto_map\)", load_tokenizer, folder)
    refused(rf"{file} names code of its own \(auto_map\)", load_model, folder)


def test_a_tokenizer_of_an_unknown_class_runs_nothing(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", tokenizer_class="EvilTokenizer")
    with suppress(GeoattnError):
        load_tokenizer(folder)
    assert not (folder.parent / "ran").exists()


@pytest.mark.parametrize("name", ["_attn_implementation", "attn_implementation"])
def test_attention_from_a_repository(folder: Path, name: str) -> None:
    edit(folder / "config.json", **{name: "stranger/kernel"})
    refused("names code of its own", load_model, folder)


class Mark:
    """Pickled, it writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl", "model.ckpt"])
def test_pickled_weights(folder: Path, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps(Mark(folder.parent / "ran")))
    load_model(folder)  # the safetensors are read, the pickle is not
    assert not (folder.parent / "ran").exists()
    (folder / "model.safetensors").unlink()
    refused("only safetensors are read", load_model, folder)


@pytest.mark.parametrize("shard", ["pytorch_model.bin", "../model.safetensors", "/etc/x.safetensors", 5])
def test_an_index_that_leads_elsewhere(folder: Path, shard: Any) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Mark(folder.parent / "ran")))
    edit(folder / "model.safetensors.index.json", weight_map={"embeddings.word_embeddings.weight": shard})
    refused("only .safetensors files beside it are read", load_model, folder)


def test_an_adapter_that_leads_elsewhere(folder: Path) -> None:
    edit(folder / "adapter_config.json", base_model_name_or_path="stranger/model", peft_type="LORA")
    refused("holds an adapter", load_model, folder)


@pytest.mark.parametrize("setting", ["architectures", "tokenizer_class", "problem_type"])
def test_names_of_other_things_are_not_called(folder: Path, setting: str) -> None:
    edit(folder / "config.json", **{setting: ["os.system"] if setting == "architectures" else "os.system"})
    with suppress(GeoattnError):
        load_model(folder)
    assert not (folder.parent / "ran").exists()
