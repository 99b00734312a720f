from __future__ import annotations

import html
import json

import pytest

from geoattn.report.escaping import json_for_script, plotly_text, visible
from tests.report.conftest import HOSTILE


@pytest.mark.parametrize("text", HOSTILE)
def test_json_comes_back_and_holds_no_markup(text):
    written = json_for_script({text: [text, 1.5, None]})
    assert json.loads(written) == {text: [text, 1.5, None]}
    assert not set(written) & set("<>&\u2028\u2029")
    assert written.isascii()


def test_json_has_null_for_what_is_not_a_number():
    assert json_for_script([float("nan"), float("inf"), 1.0]) == "[null,null,1.0]"


@pytest.mark.parametrize("text", HOSTILE)
def test_visible_text_is_short_one_line_and_cannot_turn_its_neighbours(text):
    shown = visible(text, 30)
    assert len(shown) <= 30 + len("… (10,000 characters)")
    assert shown.splitlines() == [shown]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x00")


def test_a_lone_surrogate_can_be_written():
    assert visible("a\ud800b") == "a\ufffdb"


def test_plotly_sees_text_not_tags():
    assert html.unescape(plotly_text("<b>&amp;</b>")) == "<b>&amp;</b>"
    assert "<" not in plotly_text("<a href='javascript:x'>")
