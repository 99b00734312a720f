"""The readers under Atheris, which keeps the files that reach new code: with_atheris.py TARGET [options of libFuzzer].

`make fuzz-atheris TARGET=attention.npz` installs Atheris beside the environment, in .venv-fuzz, and calls this. The
corpus that it finds is build/atheris/TARGET.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from random import Random


def main() -> None:
    """Run until a defect, or as the options say."""
    import atheris  # pyright: ignore[reportMissingImports]

    with atheris.instrument_imports(include=["geoattn._core", "geoattn.datasets", "geoattn.graph", "geoattn.runs"]):
        import geoattn.datasets.attention_files
        import geoattn.datasets.formats
        import geoattn.datasets.forms.registry
        import geoattn.graph.graph_files
        import geoattn.runs.store  # noqa: F401

    from tests.assurance.fuzz.files import limit_memory
    from tests.assurance.fuzz.mutator import mutate
    from tests.assurance.fuzz.seeds import seeds
    from tests.assurance.fuzz.targets import try_file

    name = sys.argv.pop(1)
    corpus = Path("build/atheris", name)
    corpus.mkdir(parents=True, exist_ok=True)
    for k, content in enumerate(seeds()[name]):
        (corpus / f"seed-{k}").write_bytes(content)
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    starts = seeds()[name]

    def one(content: bytes) -> None:
        said = try_file(name, content, folder)
        if said is not None:
            raise RuntimeError(said)

    def change(content: bytes, size: int, seed: int) -> bytes:
        random = Random(seed)
        return (atheris.Mutate(content, size) if random.random() < 0.3 else mutate(content, starts, random))[:size]

    atheris.Setup([*sys.argv, str(corpus)], one, custom_mutator=change)
    limit_memory()
    atheris.Fuzz()


if __name__ == "__main__":
    main()
