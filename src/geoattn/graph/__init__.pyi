from .build import Graphs as Graphs
from .build import build_graphs as build_graphs
from .convention import PRESETS as PRESETS
from .convention import Convention as Convention
