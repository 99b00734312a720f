from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import geoattn as ga
from geoattn.citations import METHODS, cite

ROOT = Path(__file__).parents[2]


def keys(text: str) -> list[str]:
    return re.findall(r"^@\w+\{(\w+),", text, flags=re.M)


def test_everything_once_and_balanced(run):
    text = run("cite").stdout
    assert keys(text)[:2] == ["geoattn", "ollivier2009"]
    assert len(keys(text)) == len(set(keys(text)))
    assert set(keys(text)) == {"geoattn"} | {key for found in METHODS.values() for key in found}
    assert text.count("{") == text.count("}")
    for entry in text.split("\n\n"):
        assert re.match(r"% .+\n@(software|article|inproceedings|misc)\{\w+,\n", entry)
        assert "title" in entry
        assert "author" in entry


def test_every_lens_has_papers(run):
    for lens in ("curvature", "spectrum", "smoothness", "dynamics", "training"):
        assert len(keys(run("cite", lens).stdout)) > 1


def test_years_and_addresses(run):
    """The software has no DOI, and the paper under review has neither a year nor an address."""
    for entry in run("cite").stdout.split("\n\n"):
        (key,) = keys(entry)
        if key != "attentionricci":
            assert re.search(r"^  year +=", entry, flags=re.M), key
        if key not in ("geoattn", "attentionricci"):
            (doi,) = re.findall(r"^  doi +\= \{(10\.\d{4,}/\S+)\},$", entry, flags=re.M)
            assert f"{{https://doi.org/{doi}}}" in entry


def test_methods_by_name(run):
    assert keys(run("cite", "lin-lu-yau", "sinkhorn").stdout) == [
        "geoattn",
        "ollivier2009",
        "lin2011",
        "cuturi2013",
    ]


def test_the_software_entry_is_that_of_the_citation_file():
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    entry = cite("ollivier").split("\n\n")[0]
    assert f"title   = {{{about['title']}}}" in entry
    assert f"{{{{{about['authors'][0]['name']}}}}}" in entry
    assert f"license = {{{about['license']}}}" in entry
    assert f"year    = {{{about['date-released'][:4]}}}" in entry


def test_a_result_says_what_it_used():
    attention = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    assert keys(cite(ga.ollivier_ricci(attention))) == ["geoattn", "ollivier2009"]
    limit = ga.Convention.of("grc-0.6").but(alpha="limit")
    assert keys(cite(ga.ollivier_ricci(attention, limit, edges=2)))[1:] == [
        "ollivier2009",
        "lin2011",
        "ni2019",
        "massart1990",
    ]


def test_other_things_are_refused():
    with pytest.raises(ga.GeoattnError, match="cite takes names of methods or results"):
        cite(3)
