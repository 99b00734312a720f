"""The lenses of a profile, a file each. Importing this package registers them."""

from geoattn.profiles.lens import LENSES
from geoattn.profiles.lenses import curvature, gradient_flow, sink_mass, sinks, smoothness, spectrum, weights

__all__ = ["LENSES", "curvature", "gradient_flow", "sink_mass", "sinks", "smoothness", "spectrum", "weights"]
