"""Copies and files of a model while something is attached: clean, and the model itself goes on."""

from __future__ import annotations

import copy
import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from geoattn.attention import capture
from geoattn.training.attachments import attachment_class, attachment_names
from geoattn.training.regularisers.variance import VarianceRegulariser
from tests.contracts.attachments import traces
from tests.training.small_models import BATCH, bert, lvit
from tests.training.test_contract import SETTINGS


def saved(model: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


@pytest.mark.parametrize("name", attachment_names())
def test_copies_and_files_are_clean(name: str) -> None:
    model, x = lvit(), torch.rand(2, 1, 8, 8)
    expected = model(x)
    before = {module: set(vars(module)) for module in model.modules()}
    with attachment_class(name)(**SETTINGS[name]).attach(model) as handle:
        model(x)
        handle.penalty()  # with the graph of a step alive
        loaded = torch.load(io.BytesIO(saved(model)), weights_only=False)
        for twin in (copy.deepcopy(model), loaded):
            assert traces(twin) == 0
            assert not any("__getstate__" in vars(module) for module in twin.modules())
            torch.testing.assert_close(twin(x), expected)
        model(x)
        assert handle.step >= 1  # the model itself is still watched
    assert {module: set(vars(module)) for module in model.modules()} == before


def test_files_do_not_name_what_was_attached() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with VarianceRegulariser("increase").attach(model):
        text = pickle.dumps(model)
    named = {str(value) for _, value, _ in pickletools.genops(text) if isinstance(value, str)}
    assert not any("geoattn" in value for value in named)


def test_hooks_and_state_of_a_user_stay() -> None:
    class Own(nn.Linear):
        def __getstate__(self) -> Any:
            return {**vars(self), "kept": True}

    own = Own(8, 8)
    own.register_forward_hook(print)
    with capture(own):
        twin = copy.deepcopy(own)
    assert list(twin._forward_hooks.values()) == [print]
    assert twin.kept


def test_save_pretrained(tmp_path: Path) -> None:
    model = bert("sdpa").float()
    plain = model(**BATCH).loss
    with VarianceRegulariser("increase").attach(model):
        model(**BATCH).loss.backward()
        model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert traces(again) == 0
    torch.testing.assert_close(again(**BATCH).loss, plain)
