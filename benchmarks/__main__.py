"""Run the benchmarks: `python -m benchmarks [NAME ...]`; figures go to benchmarks/results/NAME.json."""

import importlib
import json
import platform
import sys
from datetime import date
from pathlib import Path

import numpy as np

import geoattn
from geoattn import _native
from geoattn.graph.shortest_paths import default_threads

NAMES = ("curvature",)


def main() -> None:
    """Run the named benchmarks, or all of them, and keep the figures with what they were measured on."""
    for name in sys.argv[1:] or NAMES:
        figures = importlib.import_module(f"benchmarks.{name}").run()
        record = {
            "command": f"make bench (python -m benchmarks {name})",
            "date": date.today().isoformat(),
            "machine": {"processor": _processor(), "threads": default_threads(), "kernel": _native.instruction_set()},
            "versions": {"geoattn": geoattn.__version__, "python": platform.python_version(), "numpy": np.__version__},
            **figures,
        }
        path = Path(__file__).parent / "results" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
