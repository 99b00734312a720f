"""The gallery of the docs: its numbers are computed, and they say what its text says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("make_gallery", DOCS / "make_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tree_grid_and_complete_graph_are_negative_flat_and_positive(gallery):
    tree, grid, complete = (gallery.heavy_curvature(name) for name in ("tree", "grid", "complete"))
    assert tree.max() < -0.1
    assert abs(grid.mean()) < 0.05
    assert complete.min() > 0.8


def test_the_table_of_the_page_is_that_of_the_script(gallery):
    assert gallery.table() in (DOCS / "gallery.md").read_text(encoding="utf-8")


def test_the_picture_can_be_drawn(gallery, tmp_path):
    gallery.draw(tmp_path / "gallery.png")
    assert (tmp_path / "gallery.png").stat().st_size > 10_000
