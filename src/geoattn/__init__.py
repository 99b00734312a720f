"""The geometry of transformer attention: curvature, smoothness, spectrum and dynamics, on any PyTorch model.

The names that are used daily are flat (`geoattn.ollivier_ricci`, `geoattn.capture`, `geoattn.profile` ...). All others
live in namespaces: `geoattn.curvature`, `geoattn.training`, `geoattn.dynamics` ... `__init__.pyi` lists them. A name
is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from warnings import warn

import lazy_loader as lazy

from geoattn._version import __version__

_getattr, __dir__, _names = lazy.attach_stub(__name__, __file__)
__all__ = ["__version__", *_names]  # pyright: ignore[reportUnsupportedDunderAll]

# Flat names of version 0.1, by the namespace that holds them now. They go with version 0.3.
_MOVED = {
    "attention": "Call Record",
    "curvature": (
        "Curvature CurvatureBounds FormanCurvature RicciCommunities RicciFlow SinkhornCurvature Status edge_curvature"
    ),
    "datasets": "Dataset",
    "dynamics": (
        "TokenFlow Trajectory animate energy_optimum phase_diagram run_experiment stationary_residual "
        "token_flow uniform_tokens"
    ),
    "models": "LViT LViTConfig load_llama2c load_lvit save_lvit",
    "perturbations": (
        "Robustness accuracy_drop fgsm forgetting image_perturbations lipschitz_attack perturb "
        "perturb_dataset text_perturbations"
    ),
    "profiles": "ModelSmoothness Profile model_flow",
    "smoothness": "AttentionMap LipschitzBounds Smoothness climb_lipschitz local_lipschitz_of",
    "spectral": "Spectrum depth_limit spectral_links spectral_table tangent_kernel",
    "statistics": "bimodality paired_difference rank_correlation",
    "training": "AttentionDropout Recipe RowEntropy SoftmaxTemperature Trained attention_variance streamed_variance",
}


def __getattr__(name: str) -> Any:
    for namespace, names in _MOVED.items():
        if name in names.split():
            warn(
                f"geoattn.{name} is now geoattn.{namespace}.{name}; the old name goes with version 0.3.",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(import_module(f"geoattn.{namespace}"), name)
    try:
        return _getattr(name)
    except AttributeError:
        if name in _names:  # its own import failed
            raise
    from geoattn._core.names import did_you_mean

    raise AttributeError(f"geoattn has no name {name!r}.{did_you_mean(name, _names)}", name=name)
