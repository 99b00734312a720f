"""Record what the real vit-pytorch computes in float64, with weights that NumPy makes from a seed.

Needs torch, NumPy, safetensors, einops and vit-pytorch; torchvision is not needed, because only the file of
``ViT`` is loaded. From the root of the repository, with the packages of .venv borrowed:

    .venv/bin/python -m venv .venv-vit
    ls -d $PWD/.venv/lib/python3*/site-packages > $(ls -d .venv-vit/lib/python3*/site-packages)/borrowed.pth
    .venv-vit/bin/python -m pip install --no-deps vit-pytorch==1.26.11 einops==0.8.2
    .venv-vit/bin/python tests/training/references/make_vit_references.py

and to run the tests against the real one:

    PYTHONPATH=$(ls -d .venv-vit/lib/python3*/site-packages) .venv/bin/python -m pytest tests/training/test_lvit.py
"""

import importlib.util
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

#: Sizes by name: L-ViT of the paper, the embedded one, and one with heads and an output projection.
_PAPER = {"dim": 64, "depth": 8, "heads": 1, "dim_head": 64, "mlp_dim": 128}
CASES = {
    "mnist": {"image_size": 28, "patch_size": 7, "channels": 1, **_PAPER},
    "cifar10": {"image_size": 32, "patch_size": 8, "channels": 3, **_PAPER},
    "digits": {"image_size": 8, "patch_size": 2, "channels": 1, **_PAPER},
    "heads": {
        "image_size": 12, "patch_size": 4, "channels": 2, "dim": 24, "depth": 2, "heads": 3, "dim_head": 8,
        "mlp_dim": 40,
    },
}  # fmt: skip
CLASSES = 10


def load_vit_pytorch():
    """The class ``ViT`` of vit-pytorch, without the package's own imports (they want torchvision)."""
    package = importlib.util.find_spec("vit_pytorch")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("vit-pytorch is not installed here")
    path = Path(package.submodule_search_locations[0]) / "vit.py"
    spec = importlib.util.spec_from_file_location("vit_pytorch_vit", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ViT


def fill(model: torch.nn.Module, seed: int) -> None:
    """Set every parameter, in the order of the names, from NumPy's frozen generator."""
    random = np.random.RandomState(seed)  # its stream never changes
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            spread = 1.0 if parameter.ndim < 2 or "embedding" in name else 1.5 / np.sqrt(parameter.shape[-1])
            values = random.standard_normal(tuple(parameter.shape)) * spread
            parameter.copy_(torch.from_numpy(values + (1.0 if "norm" in name and "weight" in name else 0.0)))


def images(case: dict, seed: int, batch: int = 2) -> torch.Tensor:
    """Pixels in [0, 1], float64."""
    random = np.random.RandomState(seed)
    return torch.from_numpy(random.rand(batch, case["channels"], case["image_size"], case["image_size"]))


def main() -> None:
    """Write logits and attention maps of each case."""
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    vit, tensors = load_vit_pytorch(), {}
    for seed, (name, case) in enumerate(CASES.items()):
        model = vit(**case, num_classes=CLASSES, dropout=0.1, emb_dropout=0.1).double().eval()
        fill(model, seed)
        maps: list[torch.Tensor] = []
        for layer in model.transformer.layers:
            layer[0].attend.register_forward_hook(lambda _module, _inputs, output, maps=maps: maps.append(output))
        with torch.no_grad():
            tensors[f"{name}.logits"] = model(images(case, seed))
        tensors[f"{name}.attention"] = torch.stack(maps)
    about = {"vit-pytorch": version("vit-pytorch"), "torch": torch.__version__}
    target = Path(__file__).with_name("vit-pytorch.safetensors")
    save_file(tensors, target, {"about": json.dumps(about)})
    target.chmod(0o644)


if __name__ == "__main__":
    main()
