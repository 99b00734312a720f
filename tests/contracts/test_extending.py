"""What docs/extending.md defines obeys the laws that everything registered obeys."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.contracts.attachments import check_attachment
from tests.contracts.lenses import check_lens
from tests.contracts.perturbations import check_perturbation

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
IMAGES = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@cache
def users_classes() -> dict[str, Any]:
    """Run the page as a reader would, and keep what it defines; in a module, so that pickle finds it."""
    module = ModuleType("extending")
    sys.modules["extending"] = module
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(PAGE), "exec"), module.__dict__)
        assert printed.getvalue(), "an example of the page prints nothing"
    return module.__dict__


@pytest.mark.parametrize("name", ["FirstTokenWeight", "LargestWeight"])
def test_a_users_lens(name: str) -> None:
    check_lens(users_classes()[name]())


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_users_perturbation(share: float) -> None:
    check_perturbation(users_classes()["Darken"](share), IMAGES)


def test_a_users_regulariser() -> None:
    check_attachment(users_classes()["LookElsewhere"]())


def test_a_lens_that_breaks_the_contract_is_found() -> None:
    class LastPiece(users_classes()["LargestWeight"]):
        def merge(self, one: Any, other: Any) -> Any:
            return other

    with pytest.raises(AssertionError):
        check_lens(LastPiece())
