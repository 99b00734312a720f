"""The templates of the page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["package_file", "render"]


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("geoattn.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def render(name: str, **context: Any) -> Markup:
    """A template with every value escaped."""
    return Markup(_environment().get_template(name).render(**context))


def package_file(name: str) -> str:
    """Text of a file beside this one."""
    return (files("geoattn.report") / name).read_text(encoding="utf-8")
