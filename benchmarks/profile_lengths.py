"""Profiles at real lengths: seconds, memory, and where the time goes.

    GEOATTN_MODELS=FOLDER GEOATTN_DATA=FOLDER python -m benchmarks profile_lengths      # about ten minutes

The folder of models holds smollm2-135m, minilm and dinov2-small. Each row is a process of its own with the default
number of threads. ``seconds`` is the time of `profile` (or of `geoattn report`), without loading the model, and without
the time of a forward pass, which is measured beside it after a first one. ``aim`` is in seconds. ``peak_mib`` is the
peak of resident memory above that of the process with the loaded model after one forward pass. ``by_lens`` sums the
seconds inside each lens; what is left is maps, capture and sums. ``progress_calls`` counts how often the bar was told
where the profile is, and ``longest_silence`` is the longest time between two of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

AIMS = {
    "SmolLM2-135M, one text of 512 tokens": 12.0,
    "SmolLM2-135M, one text of 1,024 tokens": 40.0,
    "SmolLM2-135M, one text of 2,048 tokens": 180.0,
    "GPT-2 shape, random weights, 512 tokens, edges=64": 15.0,
    "MiniLM, 20 film reviews cut at 512 tokens, geoattn report": 180.0,
    "DINOv2-small, 32 images of 257 tokens, precision=0.01": 120.0,
}


def run() -> dict[str, Any]:
    """All rows."""
    return {"memory_aim_mib": 2048, "rows": [_in_a_process(name) for name in AIMS]}


def _in_a_process(name: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "benchmarks.profile_lengths", name], check=True, capture_output=True)
    row = json.loads(done.stdout.splitlines()[-1])
    print(row, flush=True)
    return row


def _text(folder: Path, tokens: int) -> Any:
    from transformers import AutoTokenizer

    import geoattn as ga

    text = "\n".join(ga.load_data("imdb", split="test", limit=200).texts or ())
    return {"input_ids": AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids[:, :tokens]}


def _made(name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """Model, batches and options of a row."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, GPT2Config, GPT2Model

    import geoattn as ga

    root = Path(os.environ["GEOATTN_MODELS"])
    if name.startswith("SmolLM2"):
        folder = root / "smollm2-135m"
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return model, [_text(folder, int(name.split()[-2].replace(",", "")))], {}
    if name.startswith("GPT-2"):
        torch.manual_seed(0)
        model = GPT2Model(GPT2Config(bos_token_id=0, eos_token_id=0)).eval()
        return model, [{"input_ids": torch.randint(50257, (1, 512))}], {"edges": 64}
    model = AutoModel.from_pretrained(root / "dinov2-small").eval()
    pixels = ga.load_data("cifar10", split="test", limit=32).pixels()
    pixels = torch.nn.functional.interpolate(pixels, size=224, mode="bicubic", antialias=True).clamp(0, 1)
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    images = (pixels - mean) / std
    return model, [{"pixel_values": images[k : k + 8]} for k in range(0, 32, 8)], {"precision": 0.01}


def measure(name: str) -> dict[str, Any]:
    """One row, in this process."""
    if name.startswith("MiniLM"):
        return _report(name)
    import torch

    import geoattn as ga
    from geoattn.profiles import lens as contract
    from geoattn.profiles import lenses  # noqa: F401, registers them

    model, batches, options = _made(name)
    forward = 0.0
    with torch.no_grad():
        model(**batches[0])
        for batch in batches:
            start = time.perf_counter()
            model(**batch)
            forward += time.perf_counter() - start
    by_lens: dict[str, float] = {}
    for kind in set(contract.Lens.__subclasses__()) | {
        k for c in contract.Lens.__subclasses__() for k in c.__subclasses__()
    }:
        _time_lens(kind, by_lens)
    told: list[float] = []
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS")
    start = time.perf_counter()
    profile = ga.profile(model, batches, progress=lambda *_: told.append(time.perf_counter()), **options)
    seconds = time.perf_counter() - start - forward
    gaps = [b - a for a, b in zip([start, *told], told, strict=False)]
    return {
        "profile": name, "seconds": round(seconds, 2), "aim": AIMS[name], "forward": round(forward, 2),
        "peak_mib": round(_memory("VmHWM") - before), "maps": profile.settings["maps"],
        "values": profile.settings["values"], "precision": profile.settings["precision"],
        "by_lens": {k: round(v, 2) for k, v in sorted(by_lens.items())},
        "progress_calls": len(told), "longest_silence": round(max(gaps), 2), "threads": profile.settings["threads"],
    }  # fmt: skip


def _time_lens(kind: Any, by_lens: dict[str, float]) -> None:
    if "measure" in vars(kind) or ("see" in vars(kind) and kind.__name__ == "CurvatureLens"):
        method = "measure" if "measure" in vars(kind) else "see"
        plain = vars(kind)[method]

        def timed(self: Any, piece: Any) -> Any:
            start = time.perf_counter()
            found = plain(self, piece)
            found = found if method == "see" or isinstance(found, tuple) else list(found)
            by_lens[self.name] = by_lens.get(self.name, 0.0) + time.perf_counter() - start
            return found

        setattr(kind, method, timed)


def _report(name: str) -> dict[str, Any]:
    """The command line, on a file of texts; time and memory are those of the whole process."""
    import resource

    import geoattn as ga

    folder = Path(os.environ["GEOATTN_MODELS"]) / "minilm"
    with tempfile.TemporaryDirectory() as place:
        texts = Path(place) / "reviews.jsonl"
        rows = ga.load_data("imdb", split="test", limit=20).texts or ()
        texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "geoattn", "report", str(folder), "--data", str(texts), "--column", "text",
             "--out", str(Path(place) / "r.html")], check=True, capture_output=True, text=True,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        size = (Path(place) / "r.html").stat().st_size
    return {
        "profile": name, "seconds": round(seconds, 2), "aim": AIMS[name], "page_bytes": size,
        "process_peak_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "said": (done.stdout + done.stderr).strip().splitlines()[-1][-200:],
    }  # fmt: skip


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
