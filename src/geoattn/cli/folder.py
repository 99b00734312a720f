"""A folder of results that appears whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geoattn._core.errors import GeoattnError
from geoattn._core.files import clear_halves, half_name, keep_names

if TYPE_CHECKING:
    from geoattn.profiles.map_layers import LayerCurvature

__all__ = ["check_folder", "result_files", "write_folder"]


def check_folder(folder: Path) -> None:
    """Fail before the work, not after it, when the folder cannot be written; creates nothing."""
    try:
        existing = folder
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if not existing.is_dir():
            raise GeoattnError(f"--out must be a folder; {existing} is a file.")
    except OSError as error:
        raise GeoattnError(f"cannot write to {folder}: {error.strerror or error}.") from None
    if not os.access(existing, os.W_OK | os.X_OK):
        raise GeoattnError(f"cannot write to {folder}: {existing} is not writable.")


def result_files(solved: Sequence[LayerCurvature], summary: dict[str, Any]) -> dict[str, bytes]:
    """Content by name: curvature.parquet (all edges, summary in its metadata) and a histogram per layer."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    from geoattn.cli.histogram import histogram_png

    tables = [layer.table for layer in solved if layer.table is not None]
    for column in ("layer", "status"):  # categories in common, or concatenation gives up on them
        categories = list(dict.fromkeys(c for table in tables for c in table[column].cat.categories))
        for table in tables:
            table[column] = table[column].cat.set_categories(categories)
    table = pa.Table.from_pandas(pd.concat(tables, ignore_index=True), preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"geoattn": json.dumps(summary).encode()})
    file = BytesIO()
    pq.write_table(table, file, compression="zstd")
    files = {"curvature.parquet": file.getvalue()}
    for k, layer in enumerate(solved):
        safe = re.sub(r"[^A-Za-z0-9._-]+", "_", layer.name)[:80]  # a name from a file must not become a path
        files[f"histogram-{k:02d}-{safe}.png"] = histogram_png(
            layer.values, f"layer {layer.name}", f"convention {layer.summary['convention']}"
        )
    return files


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write all files under temporary names, then rename them; a full disk shows before the first is renamed."""
    created = [p for p in (folder, *folder.parents) if not os.path.exists(p)]  # innermost first
    stage: str | None = None
    renamed: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in clear_halves(folder, ".geoattn-"):
            shutil.rmtree(old, ignore_errors=True)
        stage = tempfile.mkdtemp(dir=folder, prefix=half_name(".geoattn-"))
        for name, content in files.items():
            with open(Path(stage, name), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name in files:  # renames need no space: from here on it succeeds
            os.replace(Path(stage, name), folder / name)
            renamed.append(name)
        os.rmdir(stage)
        keep_names(folder)
    except BaseException as error:
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)
        for path in created:
            try:
                path.rmdir()  # only when empty
            except OSError:
                break
        if isinstance(error, OSError):
            reason = error.strerror or error
            left = f"Written before: {', '.join(renamed)}." if renamed else "Nothing was left behind."
            raise GeoattnError(f"cannot write to {folder}: {reason}. {left}") from None
        raise
