"""Two real gloo processes against one: the same losses, penalties and weights for the same batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.training.checkpoint import Position, load_checkpoint, save_checkpoint
from geoattn.training.distributed import Processes, mean_over_samples, with_all_maps
from geoattn.training.training_log import read_json_lines

# No dropout: each process draws its own. 50 rows in batches of 16 leave a rest of 2, one row for each process.
_SHAPE = {"depth": 2, "dim": 16, "dim_head": 16, "dropout": 0.0, "emb_dropout": 0.0}
_PENALTIES = [
    ("variance", {"direction": "increase", "gamma": 3.0}),
    ("curvature", {"direction": "decrease", "gamma": 2.0, "maps": 5, "edges": 12, "threads": 1}),
    ("entropy", {"direction": "decrease", "gamma": 0.5}),
    ("lipschitz", {"gamma": 0.5, "heads": 3, "tolerance": 1e-6}),
]
_RECIPE = {
    "data": "digits", "epochs": 2, "batch": 16, "limit": 50, "test_limit": 20, "changes": _SHAPE,
    "regularisers": _PENALTIES, "monitor_every": 3,
}  # fmt: skip
_WORKER = """
import json, sys
from pathlib import Path
from geoattn.training.loop import train
from geoattn.training.distributed import Processes, joined
from geoattn.training.recipe import Recipe
recipe, out = json.loads(sys.argv[1]), sys.argv[2]
with joined("cpu") as device:
    rank = Processes().rank
    done = train(Recipe(**recipe), out, device=device)
    checks = [sum(p.double().sum().item() for p in done.model.parameters())]
    Path(out, f"rank{rank}.json").write_text(json.dumps([checks, done.test_accuracy, list(done.history)]))
"""


def _together(arguments: list[str], count: int = 2) -> None:
    """Run processes as torchrun would, with a free port of this machine to meet at."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(count):
        about = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        running.append(
            subprocess.Popen([sys.executable, *arguments], env={**os.environ, **about}, stderr=subprocess.PIPE)
        )
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()[-2000:]


def _weights(folder: Path, recipe: Any) -> LViT:
    model = LViT(LViTConfig(image_size=8, patch_size=2, **_SHAPE))
    load_checkpoint(folder / "checkpoint.safetensors", model, torch.optim.Adam(model.parameters()), recipe.key)
    return model


def test_two_processes_equal_one(tmp_path: Path) -> None:
    from geoattn.training.loop import train
    from geoattn.training.recipe import Recipe

    recipe = Recipe(**_RECIPE)
    alone = train(recipe, tmp_path / "one")
    _together(["-c", _WORKER, json.dumps(_RECIPE), str(tmp_path / "two")])
    first, second = (json.loads((tmp_path / f"two/rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second  # weights, accuracy and history are the same everywhere
    for mine, theirs in zip(alone.history, first[2], strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert theirs[name] == pytest.approx(value, rel=2e-4, abs=1e-6), name
    model = _weights(tmp_path / "two", recipe)
    for (name, a), b in zip(alone.model.named_parameters(), model.parameters(), strict=True):
        # Adam divides by the root of squares: where a gradient is nearly 0, rounding moves a weight by a rate's length
        assert float((a - b).detach().abs().mean()) < 2e-5, name
    logs = [read_json_lines(tmp_path / k / "log.jsonl") for k in ("one", "two")]
    assert [row["step"] for row in logs[0]] == [row["step"] for row in logs[1]]
    for mine, theirs in zip(*logs, strict=True):
        for name in ("pl_ratio", "curvature", "variance"):
            if name in mine:
                assert theirs[name] == pytest.approx(mine[name], rel=1e-3), name


def test_without_the_group_the_variance_would_differ() -> None:
    """The mean of h over processes is not h of the mean: the test above can fail."""
    variances = torch.tensor([0.001, 0.02])
    assert abs(float(torch.exp(-100 * variances).mean() - torch.exp(-100 * variances.mean()))) > 0.1


def test_command_line_under_torchrun(tmp_path: Path) -> None:
    options = ["--epochs", "1", "--limit", "40", "--test-limit", "20", "--batch", "20", "--variance", "increase"]
    _together(["-m", "geoattn", "train", "digits", *options, "--out", str(tmp_path / "run")])
    rows = (tmp_path / "run/log.jsonl").read_text().splitlines()
    assert len(rows) == 1  # the first process alone writes
    assert json.loads(rows[0])["step"] == 2


def test_shares_cover_a_batch_in_order() -> None:
    rows = torch.arange(29)
    parts = []
    for rank in range(4):
        processes = Processes()
        processes.count, processes.rank = 4, rank
        parts.append(processes.share(rows))
    assert torch.cat(parts).equal(rows)
    assert {len(part) for part in parts} == {7, 8}
    with pytest.raises(GeoattnError, match="a batch of 3 rows cannot be divided among 4 processes"):
        processes.share(rows[:3])


def test_one_process_is_plain() -> None:
    values = torch.tensor([1.0, float("nan"), 3.0], requires_grad=True)
    mean_over_samples(values).backward()
    assert values.grad is not None
    assert values.grad.nan_to_num().tolist() == [0.5, 0.0, 0.5]
    assert float(mean_over_samples(torch.tensor([1.0, 2.0]))) == 1.5
    maps = torch.rand(2, 3, 3)
    assert with_all_maps(maps) is maps
    processes = Processes()
    assert processes.gather("x") == ["x"]
    assert processes.total(torch.tensor(2.0)).item() == 2.0


def test_random_states_of_all_processes_are_kept(tmp_path: Path) -> None:
    model = LViT(LViTConfig(image_size=8, patch_size=2, **_SHAPE))
    adam = torch.optim.Adam(model.parameters())
    states = [torch.Generator().manual_seed(k).get_state() for k in (1, 2)]
    save_checkpoint(tmp_path / "c.safetensors", model, adam, Position(), "key", states)
    with torch.random.fork_rng():
        for rank in (0, 1):
            load_checkpoint(tmp_path / "c.safetensors", model, adam, "key", rank)
            assert torch.get_rng_state().equal(states[rank])
