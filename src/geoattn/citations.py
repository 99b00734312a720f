"""BibTeX of geoattn and of the methods it computes."""

from __future__ import annotations

import re
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn._version import __version__

__all__ = ["METHODS", "cite"]

# key -> (what it stands for, BibTeX)
_ENTRIES = {
    "geoattn": (
        "the software",
        f"""@software{{geoattn,
  title   = {{geoattn: the geometry of attention}},
  author  = {{{{The geoattn authors}}}},
  version = {{{__version__}}},
  year    = {{2026}},
  license = {{MIT}}
}}""",
    ),
    "ollivier2009": (
        "Ollivier-Ricci curvature",
        """@article{ollivier2009,
  title   = {Ricci curvature of {Markov} chains on metric spaces},
  author  = {Ollivier, Yann},
  journal = {Journal of Functional Analysis},
  volume  = {256},
  number  = {3},
  pages   = {810--864},
  year    = {2009},
  doi     = {10.1016/j.jfa.2008.11.001}
}""",
    ),
    "lin2011": (
        "the limit alpha -> 1 of Ollivier-Ricci curvature",
        """@article{lin2011,
  title   = {Ricci curvature of graphs},
  author  = {Lin, Yong and Lu, Linyuan and Yau, Shing-Tung},
  journal = {Tohoku Mathematical Journal},
  volume  = {63},
  number  = {4},
  pages   = {605--627},
  year    = {2011},
  doi     = {10.2748/tmj/1325886283}
}""",
    ),
    "ni2019": (
        "GraphRicciCurvature: the exponential measure, discrete Ricci flow and communities by surgery",
        """@article{ni2019,
  title   = {Community detection on networks with {Ricci} flow},
  author  = {Ni, Chien-Chun and Lin, Yu-Yao and Luo, Feng and Gao, Jie},
  journal = {Scientific Reports},
  volume  = {9},
  pages   = {9984},
  year    = {2019},
  doi     = {10.1038/s41598-019-46380-9}
}""",
    ),
    "attentionricci": (
        "curvature of attention maps, and its link to training and robustness",
        """@misc{attentionricci,
  title  = {The geometry of attention: {Ricci} curvature and transformers training and robustness},
  author = {{Anonymous authors}},
  note   = {Paper under double-blind review}
}""",
    ),
    "forman2003": (
        "Forman-Ricci curvature",
        """@article{forman2003,
  title   = {Bochner's method for cell complexes and combinatorial {Ricci} curvature},
  author  = {Forman, Robin},
  journal = {Discrete \\& Computational Geometry},
  volume  = {29},
  number  = {3},
  pages   = {323--374},
  year    = {2003},
  doi     = {10.1007/s00454-002-0743-x}
}""",
    ),
    "sreejith2016": (
        "Forman curvature of weighted graphs",
        """@article{sreejith2016,
  title   = {Forman curvature for complex networks},
  author  = {Sreejith, R. P. and Mohanraj, Karthikeyan and Jost, J{\\"u}rgen and Saucan, Emil
             and Samal, Areejit},
  journal = {Journal of Statistical Mechanics: Theory and Experiment},
  volume  = {2016},
  number  = {6},
  pages   = {063206},
  year    = {2016},
  doi     = {10.1088/1742-5468/2016/06/063206}
}""",
    ),
    "samal2018": (
        "augmented Forman curvature, with triangles",
        """@article{samal2018,
  title   = {Comparative analysis of two discretizations of {Ricci} curvature for complex networks},
  author  = {Samal, Areejit and Sreejith, R. P. and Gu, Jiao and Liu, Shiping and Saucan, Emil
             and Jost, J{\\"u}rgen},
  journal = {Scientific Reports},
  volume  = {8},
  pages   = {8650},
  year    = {2018},
  doi     = {10.1038/s41598-018-27001-3}
}""",
    ),
    "topping2022": (
        "balanced Forman curvature",
        """@inproceedings{topping2022,
  title     = {Understanding over-squashing and bottlenecks on graphs via curvature},
  author    = {Topping, Jake and Di Giovanni, Francesco and Chamberlain, Benjamin Paul and Dong, Xiaowen
               and Bronstein, Michael M.},
  booktitle = {International Conference on Learning Representations},
  year      = {2022},
  doi       = {10.48550/arXiv.2111.14522}
}""",
    ),
    "cuturi2013": (
        "entropic transport (Sinkhorn)",
        """@inproceedings{cuturi2013,
  title     = {Sinkhorn distances: lightspeed computation of optimal transport},
  author    = {Cuturi, Marco},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {26},
  year      = {2013},
  doi       = {10.48550/arXiv.1306.0895}
}""",
    ),
    "massart1990": (
        "the confidence band of a sample of edges (Dvoretzky-Kiefer-Wolfowitz with Massart's constant)",
        """@article{massart1990,
  title   = {The tight constant in the {Dvoretzky-Kiefer-Wolfowitz} inequality},
  author  = {Massart, Pascal},
  journal = {The Annals of Probability},
  volume  = {18},
  number  = {3},
  pages   = {1269--1283},
  year    = {1990},
  doi     = {10.1214/aop/1176990746}
}""",
    ),
    "hartigan1985": (
        "the test of one mode",
        """@article{hartigan1985,
  title   = {The dip test of unimodality},
  author  = {Hartigan, J. A. and Hartigan, P. M.},
  journal = {The Annals of Statistics},
  volume  = {13},
  number  = {1},
  pages   = {70--84},
  year    = {1985},
  doi     = {10.1214/aos/1176346577}
}""",
    ),
    "bauer2012": (
        "bounds of eigenvalues by the curvature of neighbourhoods",
        """@article{bauer2012,
  title   = {{Ollivier-Ricci} curvature and the spectrum of the normalized graph {Laplace} operator},
  author  = {Bauer, Frank and Jost, J{\\"u}rgen and Liu, Shiping},
  journal = {Mathematical Research Letters},
  volume  = {19},
  year    = {2012},
  doi     = {10.48550/arXiv.1105.3803}
}""",
    ),
    "dovonon2024": (
        "what a deep stack of linear transformer layers tends to",
        """@misc{dovonon2024,
  title  = {Setting the record straight on transformer oversmoothing},
  author = {Dovonon, Gb{\\`e}tondji J.-S. and Bronstein, Michael M. and Kusner, Matt J.},
  year   = {2024},
  doi    = {10.48550/arXiv.2401.04301}
}""",
    ),
    "castin2024": (
        "local Lipschitz constants of attention, their bounds and the tokens that reach them",
        """@inproceedings{castin2024,
  title     = {How smooth is attention?},
  author    = {Castin, Val{\\'e}rie and Ablin, Pierre and Peyr{\\'e}, Gabriel},
  booktitle = {International Conference on Machine Learning},
  year      = {2024},
  doi       = {10.48550/arXiv.2312.14820}
}""",
    ),
    "kim2021": (
        "attention by L2 distances, and the growth of the Lipschitz constant with the radius",
        """@inproceedings{kim2021,
  title     = {The {Lipschitz} constant of self-attention},
  author    = {Kim, Hyunjik and Papamakarios, George and Mnih, Andriy},
  booktitle = {International Conference on Machine Learning},
  year      = {2021},
  doi       = {10.48550/arXiv.2006.04710}
}""",
    ),
    "geshkovski2023": (
        "tokens as particles on the sphere: the flows SA and USA, their energies and clusters",
        """@misc{geshkovski2023,
  title  = {A mathematical perspective on transformers},
  author = {Geshkovski, Borjan and Letrouit, Cyril and Polyanskiy, Yury and Rigollet, Philippe},
  year   = {2023},
  doi    = {10.48550/arXiv.2312.10794}
}""",
    ),
    "burger2025": (
        "the metric of the flow, the extremal points of its energy and its stationary points",
        """@article{burger2025,
  title   = {Analysis of mean-field models arising from self-attention dynamics in transformer architectures with layer
             normalization},
  author  = {Burger, Martin and Kabri, Samira and Korolev, Yury and Roith, Tim and Weigand, Lukas},
  journal = {Philosophical Transactions of the Royal Society A},
  volume  = {383},
  number  = {2298},
  pages   = {20240233},
  year    = {2025},
  doi     = {10.1098/rsta.2024.0233}
}""",
    ),
}

#: Lens, method, or preset of a convention -> keys of what to cite for it.
METHODS: dict[str, tuple[str, ...]] = {
    "curvature": ("ollivier2009", "attentionricci"),
    "spectrum": ("ollivier2009", "bauer2012", "dovonon2024"),
    "smoothness": ("castin2024", "kim2021"),
    "dynamics": ("geshkovski2023", "burger2025"),
    "training": ("attentionricci",),
    "modes": ("hartigan1985",),
    "ollivier": ("ollivier2009",),
    "lin-lu-yau": ("ollivier2009", "lin2011"),
    "attention": ("attentionricci",),
    "ricci-flow": ("ni2019",),
    "forman": ("forman2003", "sreejith2016"),
    "forman-augmented": ("forman2003", "samal2018"),
    "forman-balanced": ("topping2022",),
    "sinkhorn": ("cuturi2013",),
    "band": ("massart1990",),
    "markov": ("ollivier2009",),
    "hop": ("ollivier2009",),
    "grc-0.5": ("ollivier2009", "ni2019"),
    "grc-0.6": ("ollivier2009", "ni2019"),
}


def cite(*methods: Any) -> str:
    """BibTeX of geoattn and of the named methods; of all of them when none is named.

    A method is one of `METHODS`, or a `Curvature`: its convention and its sampling say what it used.

    >>> from geoattn.citations import cite
    >>> print(cite("sinkhorn").splitlines()[-9])
    @inproceedings{cuturi2013,
    """
    names = [name for method in methods for name in _names(method)]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        near = did_you_mean(unknown[0], METHODS)
        raise GeoattnError(f"no method {unknown[0]!r} to cite: expected one of {', '.join(METHODS)}.{near}")
    keys = ["geoattn"] + [key for name in names or METHODS for key in METHODS[name]]
    entries = [_ENTRIES[key] for key in dict.fromkeys(keys)]
    return "\n\n".join(f"% {what}\n{_with_address(bibtex)}" for what, bibtex in entries)


def _with_address(bibtex: str) -> str:
    """The entry with the URL of its DOI."""
    return re.sub(r"^  doi( *)= \{(.+)\}$", r"\g<0>,\n  url\1= {https://doi.org/\2}", bibtex, flags=re.M)


def _names(method: Any) -> list[str]:
    if isinstance(method, str):
        return [method]
    convention = getattr(method, "convention", None)
    if convention is None:
        raise GeoattnError(f"cite takes names of methods or results of geoattn; got {type(method).__name__}.")
    names = ["lin-lu-yau" if convention.alpha == "limit" else "ollivier"]
    if convention.measure == "exponential":
        names.append("grc-0.6")
    if method.index is not None:
        names.append("band")
    return names
