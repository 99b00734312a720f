"""A hook of MkDocs: each executed notebook is a page of the site, its picture first, with a link to download it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

_HEAD = "![]({pictures}/{name}.png)\n\n[Download this notebook]({name}.ipynb){{ .md-button download }}\n\n"


def on_files(files: Files, config: Any) -> Files:
    """Add a Markdown page and its pictures for each notebook; the notebook itself is copied as it is."""
    from nbconvert import MarkdownExporter

    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        path = PurePosixPath(file.src_uri)
        pictures = {"unique_key": "figure", "output_files_dir": path.stem}
        body, resources = MarkdownExporter().from_filename(str(file.abs_src_path), resources=pictures)
        title, text = body.lstrip().split("\n", 1)
        page = f"{title}\n\n{_HEAD.format(name=path.stem, pictures='../images/notebooks')}{text}"
        files.append(File.generated(config, f"{path.with_suffix('.md')}", content=page))
        for name, content in resources["outputs"].items():
            files.append(File.generated(config, f"{path.parent / name}", content=content))
    return files
