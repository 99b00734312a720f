"""The perturbations of the Ricci paper by name (Appendix D.2)."""

from __future__ import annotations

from geoattn.perturbations.images import Blur, Elastic, Flip, Perspective, Rotation
from geoattn.perturbations.perturbation import Combined, Perturbation
from geoattn.perturbations.text import CharacterSubstitution, WordSubstitution, WordSwap

__all__ = ["image_perturbations", "text_perturbations"]


def image_perturbations(size: int | None = None) -> tuple[Perturbation | Combined, ...]:
    """Section 5: flip, blur and rotation, each alone and all three, at 0.2 and 0.4. Appendix E.3: elastic, perspective.

    The paper does not say whether the three come together; both are here. ``size``: of images much smaller than 28
    pixels; elastic and blur, whose units are pixels, are then scaled to it.

    Examples
    --------
    >>> from geoattn.perturbations import image_perturbations
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
    """The perturbations of texts of the Ricci paper.

    Section 5 swaps words at 0.4. Appendix E.3 substitutes characters and words at 0.2, each alone and both.
    ``vocabulary`` holds the words that come in, for example `vocabulary_of` the training texts.

    Examples
    --------
    >>> from geoattn.perturbations import text_perturbations, vocabulary_of
    >>> [p.name for p in text_perturbations(vocabulary_of(["a warm film", "a cold film"]))]
    ['word swap 0.4', 'character substitution 0.2', 'word substitution 0.2', 'characters + words 0.2']
    """
    characters, words = CharacterSubstitution(0.2), WordSubstitution(0.2, vocabulary)
    return WordSwap(0.4), characters, words, Combined((characters, words), "characters + words 0.2")
