"""The geometry of transformer attention: curvature, with certificates and gradients, on any PyTorch model."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from geoattn._version import __version__

if TYPE_CHECKING:
    from geoattn.capture.call import Call as Call
    from geoattn.capture.check import CaptureWarning as CaptureWarning
    from geoattn.capture.record import Record as Record
    from geoattn.capture.session import capture as capture
    from geoattn.curvature.bounds import CurvatureBounds as CurvatureBounds
    from geoattn.curvature.bounds import curvature_bounds as curvature_bounds
    from geoattn.curvature.communities import RicciCommunities as RicciCommunities
    from geoattn.curvature.communities import ricci_communities as ricci_communities
    from geoattn.curvature.flow import RicciFlow as RicciFlow
    from geoattn.curvature.flow import ricci_flow as ricci_flow
    from geoattn.curvature.forman import FormanCurvature as FormanCurvature
    from geoattn.curvature.forman import forman_ricci as forman_ricci
    from geoattn.curvature.loss import curvature_loss as curvature_loss
    from geoattn.curvature.loss import edge_curvature as edge_curvature
    from geoattn.curvature.ollivier import ollivier_ricci as ollivier_ricci
    from geoattn.curvature.result import Curvature as Curvature
    from geoattn.curvature.sinkhorn import SinkhornCurvature as SinkhornCurvature
    from geoattn.curvature.sinkhorn import sinkhorn_ricci as sinkhorn_ricci
    from geoattn.curvature.transport import Status as Status
    from geoattn.data.dataset import Dataset as Dataset
    from geoattn.data.loader import load as load_data  # noqa: F401
    from geoattn.dynamics.animation import animate as animate
    from geoattn.dynamics.energy import interaction_energy as interaction_energy
    from geoattn.dynamics.experiments import run_experiment as run_experiment
    from geoattn.dynamics.optima import energy_optimum as energy_optimum
    from geoattn.dynamics.phase import phase_diagram as phase_diagram
    from geoattn.dynamics.simulate import simulate as simulate
    from geoattn.dynamics.starts import uniform_tokens as uniform_tokens
    from geoattn.dynamics.stationary import stationary_residual as stationary_residual
    from geoattn.dynamics.token_flow import TokenFlow as TokenFlow
    from geoattn.dynamics.token_flow import token_flow as token_flow
    from geoattn.dynamics.trajectory import Trajectory as Trajectory
    from geoattn.errors import DegenerateCurvatureWarning as DegenerateCurvatureWarning
    from geoattn.errors import GeoattnError as GeoattnError
    from geoattn.errors import GeoattnWarning as GeoattnWarning
    from geoattn.graph.convention import Convention as Convention
    from geoattn.profile.model_flow import model_flow as model_flow
    from geoattn.profile.model_smoothness import ModelSmoothness as ModelSmoothness
    from geoattn.profile.model_smoothness import model_smoothness as model_smoothness
    from geoattn.profile.profile import profile as profile
    from geoattn.profile.result import Profile as Profile
    from geoattn.report import plots as plots
    from geoattn.robustness.accuracy import accuracy_drop as accuracy_drop
    from geoattn.robustness.adversarial import fgsm as fgsm
    from geoattn.robustness.association import paired_difference as paired_difference
    from geoattn.robustness.association import rank_correlation as rank_correlation
    from geoattn.robustness.bimodality import bimodality as bimodality
    from geoattn.robustness.forgetting import forgetting as forgetting
    from geoattn.robustness.lipschitz_attack import lipschitz_attack as lipschitz_attack
    from geoattn.robustness.paper import image_perturbations as image_perturbations
    from geoattn.robustness.paper import text_perturbations as text_perturbations
    from geoattn.robustness.perturb import perturb as perturb
    from geoattn.robustness.perturb import perturb_dataset as perturb_dataset
    from geoattn.robustness.robustness import Robustness as Robustness
    from geoattn.robustness.robustness import robustness as robustness
    from geoattn.smoothness.adversarial import adversarial_tokens as adversarial_tokens
    from geoattn.smoothness.ascent import climb_lipschitz as climb_lipschitz
    from geoattn.smoothness.attention_map import AttentionMap as AttentionMap
    from geoattn.smoothness.bounds import LipschitzBounds as LipschitzBounds
    from geoattn.smoothness.bounds import lipschitz_bounds as lipschitz_bounds
    from geoattn.smoothness.function import local_lipschitz_of as local_lipschitz_of
    from geoattn.smoothness.local import local_lipschitz as local_lipschitz
    from geoattn.smoothness.result import Smoothness as Smoothness
    from geoattn.spectrum.depth import depth_limit as depth_limit
    from geoattn.spectrum.eigenvalues import spectrum as spectrum
    from geoattn.spectrum.links import spectral_links as spectral_links
    from geoattn.spectrum.links import spectral_table as spectral_table
    from geoattn.spectrum.result import Spectrum as Spectrum
    from geoattn.spectrum.tangent_kernel import tangent_kernel as tangent_kernel
    from geoattn.training.adapters import lightning_callback as lightning_callback
    from geoattn.training.adapters import trainer_callback as trainer_callback
    from geoattn.training.baselines import AttentionDropout as AttentionDropout
    from geoattn.training.baselines import SoftmaxTemperature as SoftmaxTemperature
    from geoattn.training.curvature_regulariser import CurvatureRegulariser as CurvatureRegulariser
    from geoattn.training.edge_mask import EdgeMask as EdgeMask
    from geoattn.training.llama2c import load_llama2c as load_llama2c
    from geoattn.training.loop import Trained as Trained
    from geoattn.training.loop import train as train
    from geoattn.training.lvit import LViT as LViT
    from geoattn.training.lvit import LViTConfig as LViTConfig
    from geoattn.training.lvit_file import load_lvit as load_lvit
    from geoattn.training.lvit_file import save_lvit as save_lvit
    from geoattn.training.models import load_model as load_model
    from geoattn.training.models import load_tokenizer as load_tokenizer
    from geoattn.training.monitor import Monitor as Monitor
    from geoattn.training.recipe import Recipe as Recipe
    from geoattn.training.row_entropy import RowEntropy as RowEntropy
    from geoattn.training.variance import attention_variance as attention_variance
    from geoattn.training.variance import streamed_variance as streamed_variance
    from geoattn.training.variance_regulariser import VarianceRegulariser as VarianceRegulariser

# Public name -> module: loaded when first used, so that `geoattn --help` does not wait for torch.
_HOMES = {
    "AttentionDropout": "geoattn.training.baselines",
    "AttentionMap": "geoattn.smoothness.attention_map",
    "Call": "geoattn.capture.call",
    "CaptureWarning": "geoattn.capture.check",
    "Convention": "geoattn.graph.convention",
    "Curvature": "geoattn.curvature.result",
    "CurvatureBounds": "geoattn.curvature.bounds",
    "CurvatureRegulariser": "geoattn.training.curvature_regulariser",
    "Dataset": "geoattn.data.dataset",
    "DegenerateCurvatureWarning": "geoattn.errors",
    "EdgeMask": "geoattn.training.edge_mask",
    "FormanCurvature": "geoattn.curvature.forman",
    "GeoattnError": "geoattn.errors",
    "GeoattnWarning": "geoattn.errors",
    "LViT": "geoattn.training.lvit",
    "LViTConfig": "geoattn.training.lvit",
    "LipschitzBounds": "geoattn.smoothness.bounds",
    "ModelSmoothness": "geoattn.profile.model_smoothness",
    "Monitor": "geoattn.training.monitor",
    "Profile": "geoattn.profile.result",
    "Recipe": "geoattn.training.recipe",
    "Record": "geoattn.capture.record",
    "RicciCommunities": "geoattn.curvature.communities",
    "RicciFlow": "geoattn.curvature.flow",
    "Robustness": "geoattn.robustness.robustness",
    "RowEntropy": "geoattn.training.row_entropy",
    "SinkhornCurvature": "geoattn.curvature.sinkhorn",
    "Smoothness": "geoattn.smoothness.result",
    "SoftmaxTemperature": "geoattn.training.baselines",
    "Spectrum": "geoattn.spectrum.result",
    "Status": "geoattn.curvature.transport",
    "TokenFlow": "geoattn.dynamics.token_flow",
    "Trained": "geoattn.training.loop",
    "Trajectory": "geoattn.dynamics.trajectory",
    "VarianceRegulariser": "geoattn.training.variance_regulariser",
    "accuracy_drop": "geoattn.robustness.accuracy",
    "adversarial_tokens": "geoattn.smoothness.adversarial",
    "animate": "geoattn.dynamics.animation",
    "attention_variance": "geoattn.training.variance",
    "bimodality": "geoattn.robustness.bimodality",
    "capture": "geoattn.capture.session",
    "climb_lipschitz": "geoattn.smoothness.ascent",
    "curvature_bounds": "geoattn.curvature.bounds",
    "curvature_loss": "geoattn.curvature.loss",
    "depth_limit": "geoattn.spectrum.depth",
    "edge_curvature": "geoattn.curvature.loss",
    "energy_optimum": "geoattn.dynamics.optima",
    "fgsm": "geoattn.robustness.adversarial",
    "forgetting": "geoattn.robustness.forgetting",
    "forman_ricci": "geoattn.curvature.forman",
    "image_perturbations": "geoattn.robustness.paper",
    "interaction_energy": "geoattn.dynamics.energy",
    "lightning_callback": "geoattn.training.adapters",
    "lipschitz_attack": "geoattn.robustness.lipschitz_attack",
    "lipschitz_bounds": "geoattn.smoothness.bounds",
    "load_llama2c": "geoattn.training.llama2c",
    "load_lvit": "geoattn.training.lvit_file",
    "load_model": "geoattn.training.models",
    "load_tokenizer": "geoattn.training.models",
    "local_lipschitz": "geoattn.smoothness.local",
    "local_lipschitz_of": "geoattn.smoothness.function",
    "model_smoothness": "geoattn.profile.model_smoothness",
    "model_flow": "geoattn.profile.model_flow",
    "ollivier_ricci": "geoattn.curvature.ollivier",
    "paired_difference": "geoattn.robustness.association",
    "perturb": "geoattn.robustness.perturb",
    "perturb_dataset": "geoattn.robustness.perturb",
    "phase_diagram": "geoattn.dynamics.phase",
    "profile": "geoattn.profile.profile",
    "rank_correlation": "geoattn.robustness.association",
    "ricci_communities": "geoattn.curvature.communities",
    "ricci_flow": "geoattn.curvature.flow",
    "robustness": "geoattn.robustness.robustness",
    "run_experiment": "geoattn.dynamics.experiments",
    "save_lvit": "geoattn.training.lvit_file",
    "simulate": "geoattn.dynamics.simulate",
    "sinkhorn_ricci": "geoattn.curvature.sinkhorn",
    "spectral_links": "geoattn.spectrum.links",
    "spectral_table": "geoattn.spectrum.links",
    "spectrum": "geoattn.spectrum.eigenvalues",
    "stationary_residual": "geoattn.dynamics.stationary",
    "streamed_variance": "geoattn.training.variance",
    "tangent_kernel": "geoattn.spectrum.tangent_kernel",
    "text_perturbations": "geoattn.robustness.paper",
    "token_flow": "geoattn.dynamics.token_flow",
    "train": "geoattn.training.loop",
    "trainer_callback": "geoattn.training.adapters",
    "uniform_tokens": "geoattn.dynamics.starts",
}
_RENAMED = {"load_data": ("geoattn.data.loader", "load")}  # `load` says little outside its module
_MODULES = {"plots": "geoattn.report.plots"}

__all__ = ["__version__", *sorted([*_HOMES, *_RENAMED, *_MODULES])]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    module, original = _RENAMED.get(name, (_HOMES.get(name), name))
    if module is None:
        raise AttributeError(f"module 'geoattn' has no attribute {name!r}")
    return getattr(import_module(module), original)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_RENAMED, *_MODULES})


class _Package(ModuleType):
    """`geoattn.capture` is the function, although a folder has its name: importing the folder must not hide it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
