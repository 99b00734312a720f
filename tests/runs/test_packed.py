"""Trials in one file: the store reads both kinds, the same trials give the same bytes, damage is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoattn.runs.store import Store
from geoattn.runs.stored_trial import DamagedTrialError

CONFIGS = [{"x": x} for x in range(5)]


def filled(folder: Path, order: list[int]) -> Store:
    store = Store(folder, "demo", 1)
    for k in order:
        store.write(CONFIGS[k], {"square": k * k}, made_with={"seconds": 1.0})
    return store


def test_a_packed_store_reads_as_before_and_goes_on(tmp_path: Path) -> None:
    store = filled(tmp_path, [0, 1, 2])
    assert store.pack() == 3
    assert not (tmp_path / "results").exists()
    assert [store.read(c) for c in CONFIGS] == [{"square": 0}, {"square": 1}, {"square": 4}, None, None]
    store.write(CONFIGS[3], {"square": 9})
    assert store.status(CONFIGS).done == 4
    with store.claim(CONFIGS[0]) as mine:
        assert not mine
    assert Store(tmp_path, "demo", 1).pack() == 1
    assert store.status(CONFIGS).done == 4
    assert store.pack() == 0


def test_the_same_trials_give_the_same_bytes(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "one", [0, 1, 2]), filled(tmp_path / "other", [2, 0])
    one.pack()
    other.pack()
    other.write(CONFIGS[1], {"square": 1}, made_with={"seconds": 1.0})
    other.pack()
    assert (tmp_path / "one/trials.jsonl").read_bytes() == (tmp_path / "other/trials.jsonl").read_bytes()


@pytest.mark.parametrize("damage", [(b'"square":4', b'"square":5'), (b'{"checksum"', b"{checksum")])
def test_a_damaged_line_is_found_and_done_again(tmp_path: Path, damage: tuple[bytes, bytes]) -> None:
    store = filled(tmp_path, [0, 1, 2])
    store.pack()
    path = tmp_path / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    bad = next(k for k, line in enumerate(lines) if b'"square":4' in line)
    lines[bad] = lines[bad].replace(*damage)
    path.write_bytes(b"".join(lines))
    assert not store.is_done(CONFIGS[2])
    if damage[0].startswith(b'"square'):
        assert store.is_damaged(CONFIGS[2])
        with pytest.raises(DamagedTrialError, match="damaged"):
            store.read(CONFIGS[2])
    with store.claim(CONFIGS[2]) as mine:
        assert mine
        store.write(CONFIGS[2], {"square": 4})
    store.pack()
    assert [store.read(c)["square"] for c in CONFIGS[:3]] == [0, 1, 4]


def test_a_line_is_checked_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver asks for the status several times a second."""
    from geoattn.runs import store as module

    checked: list[object] = []
    real = module.is_sound
    monkeypatch.setattr(module, "is_sound", lambda content, config: checked.append(config) or real(content, config))
    store = filled(tmp_path, [0, 1, 2])
    store.pack()
    checked.clear()
    for _ in range(3):
        assert store.status(CONFIGS).done == 3
    assert len(checked) == 3
    path = tmp_path / "trials.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"square":4', b'"square":50'))
    assert [store.is_done(config) for config in CONFIGS] == [True, True, False, False, False]
