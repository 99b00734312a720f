"""A hook of MkDocs: the headings of the API page are the names that a user types after ``import geoattn as ga``."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give each object of the API page its heading and its line in the table of contents."""
    if page.file.src_uri != "api.md":
        return markdown

    def with_heading(found: re.Match[str]) -> str:
        name = f"ga.{found[1]}"
        return f"{found[0]}\n    options:\n      heading: {name}\n      toc_label: {name}"

    return re.sub(r"^::: geoattn\.(\S+)$", with_heading, markdown, flags=re.M)
