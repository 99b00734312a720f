"""`model_flow`: the tokens of one sample of a model beside the flow that starts at them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.session import capture
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.feed import feed
from geoattn.dynamics.token_flows import TokenFlow, token_flow
from geoattn.profiles.batches import evaluation, read_batch

__all__ = ["model_flow"]


def model_flow(model: Any, batch: Any, sample: Any = 0, *, tokenizer: Any = None, **settings: Any) -> TokenFlow:
    """Run a model on one batch and give `token_flow` of one sample of it.

    ``batch`` is what the model takes (a tensor, a mapping, or a tuple that begins with one of them), or a `Dataset`, of
    which ``sample`` is the row; ``tokenizer`` is needed for its texts. ``settings`` are those of `token_flow`.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=3)
    >>> result = ga.profiles.model_flow(ga.load_model("lvit-digits"), digits, 2)
    >>> result.to_pandas()[["layer", "model_clusters", "flow_clusters"]].tail(1).values.tolist()
    [[7, 17, 1]]
    """
    if not isinstance(model, nn.Module):
        raise GeoattnError(f"model must be a torch.nn.Module; got {type(model).__name__}. Load it with ga.load_model.")
    place = sample
    if isinstance(batch, Dataset):
        if isinstance(sample, bool) or not isinstance(sample, int) or not 0 <= sample < len(batch):
            raise GeoattnError(f"sample must be a row from 0 to {len(batch) - 1}; got {sample!r}.")
        batch, place = next(iter(feed(batch.subset([sample]), model, tokenizer))), 0
    with evaluation(model), capture(model, inputs=True) as record:
        read_batch(batch, model, 0).run(model)
    done = token_flow(record, place, **settings)
    return replace(done, settings={**done.settings, "sample": sample})
