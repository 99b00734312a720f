import importlib.util
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.models.lvit import LViT, LViTConfig, Patches
from geoattn.models.lvit_file import load_lvit, read_notes, save_lvit

HERE = Path(__file__).parent / "references"
spec = importlib.util.spec_from_file_location("make_vit_references", HERE / "make_vit_references.py")
references = importlib.util.module_from_spec(spec)
spec.loader.exec_module(references)
CASES = list(enumerate(references.CASES.items()))


def build(case, seed):
    model = LViT(LViTConfig(**case)).double().eval()
    references.fill(model, seed)
    return model


def attention_maps(model, images):
    """softmax(q k^T / sqrt(d)) of each layer, from the projection itself: (layer, b, h, n, n)."""
    maps = []

    def keep(module, _inputs, output, heads):
        b, n, width = output.shape
        q, k, _ = output.reshape(b, n, 3, heads, width // (3 * heads)).permute(2, 0, 3, 1, 4)
        maps.append((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1))

    for layer in model.transformer.layers:
        attention = layer[0]
        attention.to_qkv.register_forward_hook(lambda *a, heads=attention.heads: keep(*a, heads))
    with torch.no_grad():
        model(images)
    return torch.stack(maps)


@pytest.mark.parametrize(("seed", "item"), CASES, ids=list(references.CASES))
def test_equals_recorded_vit_pytorch(seed, item):
    name, case = item
    recorded = load_file(HERE / "vit-pytorch.safetensors")
    model, images = build(case, seed), references.images(case, seed)
    with torch.no_grad():
        logits = model(images)
    assert recorded[f"{name}.logits"].abs().max() > 3
    torch.testing.assert_close(logits, recorded[f"{name}.logits"], atol=1e-12, rtol=0)
    maps = attention_maps(model, images)
    assert recorded[f"{name}.attention"].std() > 0.05
    torch.testing.assert_close(maps, recorded[f"{name}.attention"], atol=1e-12, rtol=0)
    with torch.no_grad():
        single = model.float()(images.float())
    torch.testing.assert_close(single.double(), recorded[f"{name}.logits"], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("seed", "item"), CASES, ids=list(references.CASES))
def test_equals_vit_pytorch_itself(seed, item):
    try:
        vit = references.load_vit_pytorch()
    except ModuleNotFoundError:
        pytest.skip("vit-pytorch is not installed here: see tests/training/references/make_vit_references.py")
    case = item[1]
    torch.manual_seed(seed)
    theirs = vit(**case, num_classes=10, dropout=0.1, emb_dropout=0.1)
    torch.manual_seed(seed)
    ours = LViT(LViTConfig(**case))
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name
    images = references.images(case, seed).float()
    torch.manual_seed(seed)
    wanted = theirs.train()(images)
    torch.manual_seed(seed)
    torch.testing.assert_close(ours.train()(images), wanted, atol=1e-5, rtol=0)  # the same dropout, too
    torch.testing.assert_close(ours.double().eval()(images.double()), theirs.double().eval()(images.double()))


def test_sizes_of_the_paper():
    for config, patch in (
        (LViTConfig(), 49),
        (LViTConfig(image_size=32, patch_size=8, channels=3), 192),
        (LViTConfig(image_size=8, patch_size=2), 4),
    ):
        model = LViT(config)
        assert config.tokens == 17
        assert len(model.transformer.layers) == 8
        assert isinstance(model.transformer.layers[0][0].to_out, nn.Identity)
        block = 2 * 64 + 64 * 192 + 2 * 64 + (64 + 1) * 128 + (128 + 1) * 64
        around = 2 * patch + (patch + 1) * 64 + 2 * 64 + 64 + 17 * 64 + 2 * 64 + 65 * 10
        assert sum(p.numel() for p in model.parameters()) == 8 * block + around


def test_patches_go_row_by_row():
    images = torch.arange(2 * 3 * 4 * 6).reshape(2, 3, 4, 6).float()
    patches = Patches(2)(images)
    for row in range(2):
        for column in range(3):
            piece = images[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            assert torch.equal(patches[:, 3 * row + column], piece.permute(0, 2, 3, 1).reshape(2, 12))


def test_gradients_reach_every_weight():
    model = LViT(LViTConfig(depth=2, image_size=8, patch_size=4))
    model(torch.rand(3, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_compiles_as_one_graph():
    model = LViT(LViTConfig(depth=1, image_size=8, patch_size=4)).eval()
    images = torch.rand(2, 1, 8, 8)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), model(images))


def test_wrong_images_and_settings():
    model = LViT()
    with pytest.raises(GeoattnError, match=r"images of shape \(b, 1, 28, 28\); got \(2, 3, 28, 28\)"):
        model(torch.zeros(2, 3, 28, 28))
    with pytest.raises(GeoattnError, match="multiple of patch_size; got 28 and 5"):
        LViTConfig(patch_size=5)
    with pytest.raises(GeoattnError, match="depth must be a positive integer; got 0"):
        LViTConfig(depth=0)
    with pytest.raises(GeoattnError, match=r"dropout must be a number with 0 <= p < 1; got 1.0"):
        LViTConfig(dropout=1.0)
    with pytest.raises(GeoattnError, match="L-ViT has no setting width; it has image_size"):
        LViTConfig.from_dict({"width": 3})


# ------------------------------------------------------------------------------------------------ files


def small():
    return LViT(LViTConfig(image_size=8, patch_size=4, depth=1, dim=8, dim_head=8, mlp_dim=8))


def test_file_keeps_everything_and_equal_models_are_equal_files(tmp_path):
    model = small()
    for name in ("a", "b"):
        save_lvit(model, tmp_path / name, accuracy=0.5, recipe="none")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = load_lvit(tmp_path / "a")
    assert again.config == model.config
    assert not again.training
    assert read_notes(tmp_path / "a") == {"accuracy": 0.5, "recipe": "none"}
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_bad_files(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "model.safetensors"
    with pytest.raises(GeoattnError, match="no such file"):
        load_lvit(path)
    save_lvit(small(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(GeoattnError, match="not a complete safetensors file"):
        load_lvit(path)
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(GeoattnError, match="not a complete safetensors file"):
        load_lvit(path)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(GeoattnError, match="has no L-ViT configuration in it"):
        load_lvit(path)
    path.write_bytes(whole.replace(b'mlp_dim\\": 8', b'mlp_dim\\": 9'))
    with pytest.raises(GeoattnError, match=r"weights do not fit .* expected \(9,\), got \(8,\)") as raised:
        load_lvit(path)
    assert "\n" not in str(raised.value)
