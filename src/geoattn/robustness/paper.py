"""The perturbations of the Ricci paper by name (Appendix D.2)."""

from __future__ import annotations

from geoattn.robustness.perturb import Combined, Perturbation
from geoattn.robustness.perturbations import Blur, Elastic, Flip, Perspective, Rotation
from geoattn.robustness.text_perturbations import CharacterSubstitution, WordSubstitution, WordSwap

__all__ = ["image_perturbations", "text_perturbations"]


def image_perturbations(size: int | None = None) -> tuple[Perturbation | Combined, ...]:
    """Section 5: flip, blur and rotation, each alone and all three, at 0.2 and 0.4. Appendix E.3: elastic, perspective.

    The paper does not say whether the three come together; both are here. ``size``: of images much smaller than 28
    pixels; elastic and blur, whose units are pixels, are then scaled to it.

    Examples
    --------
    >>> from geoattn.robustness.paper import image_perturbations
    >>> [p.name for p in image_perturbations()][-3:]
    ['elastic alpha=75', 'perspective 0.5', 'elastic + perspective']
    """
    scale = (lambda kind: kind) if size is None else (lambda kind: kind.for_size(size))
    alone, together = [], []
    for p in (0.2, 0.4):
        three = (Flip(p), scale(Blur(p)), Rotation(p))
        alone += three
        together.append(Combined(three, f"flip + blur + rotation {p:g}"))
    elastic = scale(Elastic())
    both = Combined((elastic, Perspective()), "elastic + perspective")
    return (*alone, *together, elastic, Perspective(), both)


def text_perturbations(vocabulary: tuple[str, ...]) -> tuple[Perturbation | Combined, ...]:
    """Section 5: word swap at 0.4. Appendix E.3: characters and words substituted at 0.2, each alone and both.

    ``vocabulary``: the words that come in, for example `vocabulary_of` the training texts.
    """
    characters, words = CharacterSubstitution(0.2), WordSubstitution(0.2, vocabulary)
    return WordSwap(0.4), characters, words, Combined((characters, words), "characters + words 0.2")
