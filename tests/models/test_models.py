import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from geoattn._core.errors import GeoattnError
from geoattn.models.loading import load_model, load_tokenizer
from geoattn.models.lvit import LViT
from geoattn.models.lvit_file import save_lvit
from geoattn.models.zoo import ZOO

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TINY_TEXT = {**TINY, "vocab_size": 50, "max_position_embeddings": 20}
TINY_IMAGE = {**TINY, "image_size": 16, "patch_size": 8}


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def small(name, **options):
    changes = TINY_TEXT if ZOO[name].kind == "text" else TINY_IMAGE
    return load_model(name, weights="random", **{**changes, **options})


def batch(name):
    if ZOO[name].kind == "text":
        return {"input_ids": torch.arange(8).reshape(1, 8)}
    return {"pixel_values": torch.linspace(0, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)}


def numbers(model):
    return sum(p.numel() for p in model.parameters())


TRANSFORMERS = ["bert-tiny", "electra-small", "vit-b16", "deit-b16"]


# ------------------------------------------------------------------------------------------------ by name


@pytest.mark.parametrize(
    ("name", "layers", "heads", "weights"),
    [
        ("bert-tiny", 2, 2, 4_385_920),
        ("electra-small", 12, 4, 13_483_008),
        ("vit-b16", 12, 12, 85_798_656),
        ("deit-b16", 12, 12, 85_800_192),
    ],
)
def test_sizes_of_the_papers_models(no_hub, name, layers, heads, weights):
    with torch.device("meta"):
        model = load_model(name, weights="random")
    assert (model.config.num_hidden_layers, model.config.num_attention_heads) == (layers, heads)
    assert numbers(model) == weights


@pytest.mark.parametrize("name", ["lvit-digits", "lvit-mnist", "lvit-fashion-mnist", "lvit-cifar10"])
def test_lvit_by_name(no_hub, name):
    model = load_model(name, weights="random")
    assert isinstance(model, LViT)
    assert not model.training
    c = model.config
    assert c.tokens == 17
    assert model(torch.zeros(2, c.channels, c.image_size, c.image_size)).shape == (2, 10)
    assert load_model(name, weights="random", classes=3, depth=2).config.classes == 3


def test_random_weights_follow_the_seed_and_leave_torch_alone(no_hub):
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    a, b, c = (load_model("lvit-mnist", weights="random", seed=s).cls_token for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    x, y = (small("bert-tiny").embeddings.word_embeddings.weight for _ in range(2))
    assert torch.equal(x, y)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_classifier_by_name(no_hub, name):
    model = small(name, classes=3)
    with torch.no_grad():
        assert model(**batch(name)).logits.shape == (1, 3)
    assert not model.training


def test_lvit_without_published_weights():
    with pytest.raises(GeoattnError, match=r"nobody published weights of L-ViT \(MNIST\): use weights='random'"):
        load_model("lvit-mnist")


# ------------------------------------------------------------------------------------- the embedded model


def test_embedded_model(no_hub):
    from importlib.resources import files

    from geoattn.datasets.loader import load_data
    from geoattn.models.lvit_file import read_notes
    from geoattn.models.make_embedded import accuracy

    model = load_model("lvit-digits")
    path = files("geoattn.models") / "weights" / "lvit-digits.safetensors"
    notes = read_notes(path)
    test = load_data("digits", split="test")
    assert path.stat().st_size < 1_000_000
    assert notes["test_checksum"] == test.checksum
    assert abs(accuracy(model, test) - notes["test_accuracy"]) < 0.006  # two images, on another machine
    assert notes["test_accuracy"] > 0.9
    with pytest.raises(GeoattnError, match="have 10 classes; got classes=3"):
        load_model("lvit-digits", classes=3)


def test_embedded_model_can_be_made_again(tmp_path):
    from geoattn.models.lvit_file import load_lvit
    from geoattn.models.make_embedded import make_embedded

    said, before = [], torch.random.get_rng_state()
    notes = make_embedded(tmp_path / "a.safetensors", epochs=1, limit=256, say=said.append)
    make_embedded(tmp_path / "b.safetensors", epochs=1, limit=256, say=said.append)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert load_lvit(tmp_path / "a.safetensors").config.tokens == 17
    assert notes["train_images"] == 256
    assert 0.05 < notes["test_accuracy"] < 1
    assert said[0].startswith("epoch  1 of 1: loss ")


# ------------------------------------------------------------------------------------- folders and files


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_folder_gives_back_what_was_saved(no_hub, tmp_path, name):
    model = small(name, classes=3)
    model.save_pretrained(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert type(again) is type(model)
    with torch.no_grad():
        torch.testing.assert_close(again(**batch(name)).logits, model(**batch(name)).logits)
    # another number of classes: a new head by seed, the body as it was
    other = load_model(tmp_path / "model", classes=5)
    assert other.config.num_labels == 5
    kept = {k: v for k, v in model.state_dict().items() if k.startswith(model.base_model_prefix)}
    assert kept
    assert all(torch.equal(other.state_dict()[k], v) for k, v in kept.items())
    third = load_model(tmp_path / "model", classes=5)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), third.parameters(), strict=True))
    random = load_model(tmp_path / "model", weights="random", num_hidden_layers=1)
    assert random.config.num_hidden_layers == 1


def test_file_of_an_lvit(tmp_path):
    model = load_model("lvit-mnist", weights="random", depth=1)
    save_lvit(model, tmp_path / "mine.safetensors")
    assert load_model(tmp_path / "mine.safetensors").config == model.config
    with pytest.raises(GeoattnError, match="is an L-ViT with its weights"):
        load_model(str(tmp_path / "mine.safetensors"), weights="random")


@pytest.fixture
def folder(tmp_path):
    small("bert-tiny", classes=3).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def one_line(pattern, *args, **options):
    with pytest.raises(GeoattnError, match=pattern) as raised:
        load_model(*args, **options)
    assert "\n" not in str(raised.value)


def edit_config(folder, **changes):
    path = folder / "config.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, **changes}))


def test_weights_that_do_not_fit(folder):
    edit_config(folder, intermediate_size=25)
    one_line(r"(4|6) weights do not fit .* \(24,\) in the file, \(25,\) by the configuration", folder)
    edit_config(folder, intermediate_size=24, num_hidden_layers=3)
    one_line(r"16 weights do not fit the configuration of Bert.*layer\.2.*: missing", folder)
    one_line(r"weights do not fit", folder, classes=7)  # a new head excuses only the head


def test_missing_head_is_not_made_up(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({k: v for k, v in tensors.items() if not k.startswith("classifier")}, path, {"format": "pt"})
    one_line(r"2 weights do not fit .* classifier.bias: missing", folder)
    assert load_model(folder, classes=3).config.num_labels == 3


def test_corrupt_folder(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    one_line(r"cannot load .*model", folder)
    (folder / "config.json").write_text("{")
    one_line(r"config.json is not JSON", folder)
    (folder / "config.json").write_text("{}")
    one_line(r"names no model_type", folder)
    (folder / "config.json").unlink()
    one_line(r"has no config.json", folder)


def test_pickles_are_not_read(folder, tmp_path):
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return (marker.write_text, ("x",))

    (folder / "model.safetensors").unlink()
    torch.save({"bomb": Bomb()}, folder / "pytorch_model.bin")
    one_line(r"only safetensors are read, and .* has none \(pytorch_model.bin", folder)
    assert not marker.exists()


def test_remote_code_is_not_run(folder, tmp_path):
    marker = tmp_path / "ran"
    (folder / "configuration_evil.py").write_text(f"open({str(marker)!r}, 'w').write('x')\nclass EvilConfig: pass\n")
    edit_config(folder, model_type="evil", auto_map={"AutoConfig": "configuration_evil.EvilConfig"})
    one_line(r"names code of its own \(auto_map\)", folder)
    assert not marker.exists()


# ------------------------------------------------------------------------------------------------ hub


def put_into_cache(cache, entry, model):
    """Write a model where the hub's library keeps downloads."""
    sha = "0" * 39 + "1"
    place = cache / ("models--" + entry.hub.replace("/", "--"))
    ref = place / "refs" / entry.revision
    ref.parent.mkdir(parents=True)
    ref.write_text(sha)
    model.save_pretrained(place / "snapshots" / sha)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_named_model_from_the_cache(no_hub, name):
    """As the hub has them: a classifier with 1,000 classes for vision, encoders for text."""
    image = ZOO[name].kind == "image"
    model = small(name, classes=1000 if image else None)
    put_into_cache(no_hub, ZOO[name], model)
    encoder = load_model(name)
    assert "ForImage" not in type(encoder).__name__
    body = getattr(model, model.base_model_prefix, model)
    with torch.no_grad():
        wanted, got = body(**batch(name)), encoder(**batch(name))
    torch.testing.assert_close(got.last_hidden_state, wanted.last_hidden_state)
    assert load_model(name.upper() if name == "bert-tiny" else name, classes=10).config.num_labels == 10


def test_hub_out_of_reach(no_hub):
    one_line(r"BERT-Tiny: the hub cannot be reached for google/bert_uncased.*weights='random'", "bert-tiny")
    one_line(r"the hub cannot be reached for nobody/nothing", "nobody/nothing", weights="random")
    with pytest.raises(GeoattnError, match="the hub cannot be reached"):
        load_tokenizer("electra-small")


def test_tokenizer_of_a_folder(folder):
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film"]))
    ids = load_tokenizer(folder)("Good film").input_ids
    assert ids == [2, 5, 6, 3]
    with pytest.raises(GeoattnError, match="takes images; it has no tokenizer"):
        load_tokenizer("vit-b16")


@pytest.mark.parametrize("kind", ["bert", "gpt2", "roberta", "t5", "mpnet", "camembert", "llama"])
def test_a_folder_without_a_vocabulary_has_no_tokenizer(tmp_path, kind):
    """Otherwise transformers makes up a tokenizer that knows its special tokens only."""
    edit_config(tmp_path, model_type=kind)
    with pytest.raises(
        GeoattnError, match=r"has no vocabulary .*tokenizer\.json or .*tokenizer\.save_pretrained"
    ) as told:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("kind", "name"), [("t5", "ByT5Tokenizer"), ("canine", "CanineTokenizer")])
def test_a_tokenizer_of_bytes_needs_no_vocabulary(tmp_path, kind, name):
    edit_config(tmp_path, model_type=kind)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    assert len(load_tokenizer(tmp_path)("Good film").input_ids) > 9


# ------------------------------------------------------------------------------------------------ arguments


def test_bad_arguments():
    one_line(r"unknown model 'bert-tny': expected one of lvit-digits, .*owner/name", "bert-tny")
    one_line(r"unknown model './nowhere'", "./nowhere")
    one_line(r"there is no folder no/where.*hf download OWNER/NAME --local-dir no/where", Path("no/where"))
    one_line(r"pretrained weights fit only their own configuration; got depth", "lvit-digits", depth=3)
    one_line(r"has no setting widht", "bert-tiny", weights="random", widht=3)
    one_line(r"L-ViT has no setting widht", "lvit-mnist", weights="random", widht=3)
    one_line(r"classes must be a positive number", "bert-tiny", classes=0)
    one_line(r"does not work", "bert-tiny", weights="random", num_attention_heads=3)
