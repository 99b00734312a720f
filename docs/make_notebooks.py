"""Execute the notebooks of docs/notebooks: python docs/make_notebooks.py [--check] [NAME ...].

A notebook is a script in the percent format of jupytext, ``NAME.py``, so that it can be read and reviewed as code. This
program runs it in a kernel of its own and writes ``NAME.ipynb`` with its outputs beside it, and its first picture for
the page of the gallery. Pictures are reduced to 128 colours, which makes them less than half as large. ``--check`` runs
the notebooks and writes nothing; ``embedded`` stands for those that run with what a wheel of geoattn holds.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parent / "notebooks"
THUMBNAILS = Path(__file__).parent / "images" / "notebooks"
NEED_FOLDERS = ("language_model", "text_model", "vision_model")  # models and data sets that do not come with geoattn
COLOURS = 128
WIDTH = 720  # pixels of a picture of the gallery
SECONDS = 1200  # of a cell, at most


class ThisPython(AsyncKernelManager):
    """A kernel of the Python that runs this program, whatever kernels are registered on the machine."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """How it is started."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


def names() -> list[str]:
    """All notebooks, in the order of the alphabet."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def read(name: str) -> Any:
    """The notebook of a script, without outputs."""
    notebook = jupytext.read(FOLDER / f"{name}.py")
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    return notebook


def execute(name: str) -> Any:
    """The notebook with its outputs. It runs in a folder of its own, which is removed; a cell that fails raises."""
    notebook = read(name)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of tqdm, where ipywidgets are not installed
    with tempfile.TemporaryDirectory() as folder:
        manager = ThisPython()
        NotebookClient(notebook, km=manager, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if pictures([cell]):  # what the last line of a cell that draws returns is not shown
            cell.outputs = [output for output in cell.outputs if output.output_type != "execute_result"]
        for output in cell.get("outputs", ()):
            output.pop("metadata", None) if output.output_type == "stream" else output.update(metadata={})
            data = output.get("data", {})
            if "image/png" in data:
                output["data"] = {"image/png": _smaller(data["image/png"])}
            elif "text/html" in data:  # pandas writes a style sheet into each table
                data["text/html"] = re.sub(r"<style scoped>.*?</style>\s*", "", data["text/html"], flags=re.S)
    return notebook


def pictures(cells: Any) -> list[str]:
    """All pictures of executed cells, as PNG in base64."""
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return [png for output in outputs if (png := output.get("data", {}).get("image/png"))]


def _opened(png: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")


def _smaller(png: str) -> str:
    file = io.BytesIO()
    _opened(png).quantize(COLOURS).save(file, "png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def thumbnail(notebook: Any, path: Path) -> None:
    """The first picture of a notebook, small."""
    picture = _opened(pictures(notebook.cells)[0])
    picture.thumbnail((WIDTH, WIDTH))
    path.parent.mkdir(exist_ok=True)
    picture.quantize(COLOURS).save(path, optimize=True)


def main(words: list[str]) -> None:
    """Execute the chosen notebooks, or all of them."""
    chosen = [word for word in words if word != "--check"]
    if chosen == ["embedded"]:
        chosen = [name for name in names() if name not in NEED_FOLDERS]
    for name in chosen or names():
        notebook = execute(name)
        if "--check" in words:
            sys.stdout.write(f"{name}: {len(pictures(notebook.cells))} pictures\n")
            continue
        path = FOLDER / f"{name}.ipynb"
        jupytext.write(notebook, path)
        thumbnail(notebook, THUMBNAILS / f"{name}.png")
        sys.stdout.write(f"{path.name}: {path.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
