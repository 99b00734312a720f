"""A film of tokens on the sphere: GIF, or MP4 where ffmpeg is installed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn._core.arguments import read_count
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.sphere_view import sphere_view

if TYPE_CHECKING:
    from geoattn.dynamics.mobility.minimising_movement import MinimisingMovement
    from geoattn.dynamics.mobility.result import MobilityPath
    from geoattn.dynamics.trajectory import Trajectory

__all__ = ["animate", "check_film"]

_COLOURS = "viridis"


def animate(
    trajectory: Trajectory | MobilityPath | MinimisingMovement,
    path: str | os.PathLike[str],
    *,
    run: Any = 0,
    frames: Any = 60,
    fps: Any = 12,
) -> None:
    """Write one run of a trajectory, or a geodesic, as a film: .gif by pillow or .mp4 by ffmpeg.

    The circle is drawn as a circle, three dimensions as a sphere seen from the side, more dimensions by `sphere_view`.
    A token keeps its colour. About 0.1 s and 10 kB a frame. Of the kept times at most ``frames`` are shown, equally
    spaced. All or nothing is written.

    Examples
    --------
    >>> import pathlib, tempfile, geoattn as ga
    >>> from geoattn.dynamics import animate
    >>> run = ga.simulate(ga.dynamics.uniform_tokens(5, 3), until=2.0, save=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     animate(run, f"{folder}/film.gif")
    ...     pathlib.Path(folder, "film.gif").read_bytes()[:6]
    b'GIF89a'
    """
    target = check_film(path)
    frames, fps = read_count("frames", frames, least=1), read_count("fps", fps, least=1)
    tokens = trajectory.tokens
    if tokens.shape[0] < 2:
        raise GeoattnError("this trajectory kept one time only; run simulate with keep='all'.")
    tokens = tokens.reshape(tokens.shape[0], -1, *tokens.shape[-2:])
    run = read_count("run", run, least=0)
    if run >= tokens.shape[1]:
        raise GeoattnError(f"run must be below {tokens.shape[1]}, the number of runs; got {run}.")
    kept = np.unique(np.linspace(0, len(tokens) - 1, min(frames, len(tokens))).round().astype(int))
    flat = tokens.shape[-1] == 2
    (points,), _ = sphere_view(tokens[kept, run])
    times = trajectory.t[kept].tolist()
    _film(points.numpy(), times, target, flat, fps)


def check_film(path: str | os.PathLike[str]) -> Path:
    """The path, if a film can be written there."""
    target = Path(path)
    if target.suffix.lower() not in (".gif", ".mp4"):
        raise GeoattnError(f"a film is a .gif or an .mp4 file; got {target.name!r}.")
    if target.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise GeoattnError("an .mp4 needs ffmpeg, which is not installed here; write a .gif instead.")
    if not target.absolute().parent.is_dir():
        raise GeoattnError(f"cannot write {target}: there is no folder {target.parent}.")
    return target


def _film(points: np.ndarray, times: list[float], target: Path, flat: bool, fps: int) -> None:
    from matplotlib.animation import FFMpegWriter, PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), dpi=90)
    FigureCanvasAgg(figure)
    ax: Any = figure.add_axes((0, 0, 1, 0.93), projection=None if flat else "3d")
    colours = np.linspace(0, 1, points.shape[1])
    size = float(np.clip(1500 / points.shape[1], 4, 36))
    round_ = np.linspace(0, 2 * np.pi, 200)
    if flat:
        ax.plot(np.cos(round_), np.sin(round_), color="0.8", linewidth=1)
        dots = ax.scatter(*points[0, :, :2].T, c=colours, cmap=_COLOURS, s=size)
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
    else:
        for height in np.linspace(-0.75, 0.75, 7):
            width = np.sqrt(1 - height**2)
            ax.plot(width * np.cos(round_), width * np.sin(round_), height, color="0.85", linewidth=0.6)
        for angle in np.linspace(0, np.pi, 6, endpoint=False):
            across = np.sin(round_)
            ax.plot(across * np.cos(angle), across * np.sin(angle), np.cos(round_), color="0.85", linewidth=0.6)
        dots = ax.scatter(*points[0].T, c=colours, cmap=_COLOURS, s=size, depthshade=True)
        ax.set(xlim=(-0.75, 0.75), ylim=(-0.75, 0.75), zlim=(-0.75, 0.75))
        ax.set_box_aspect((1, 1, 1))
    ax.set_axis_off()
    title = figure.text(0.5, 0.95, "", ha="center")
    writer: Any = PillowWriter(fps=fps) if target.suffix.lower() == ".gif" else FFMpegWriter(fps=fps)
    folder = tempfile.mkdtemp(prefix=".film-", dir=target.absolute().parent)
    try:
        draft = Path(folder, "film" + target.suffix.lower())
        with writer.saving(figure, str(draft), dpi=90):
            for frame, time in zip(points, times, strict=True):
                if flat:
                    dots.set_offsets(frame[:, :2])
                else:
                    dots._offsets3d = tuple(frame.T)
                title.set_text(f"t = {time:.3g}")
                writer.grab_frame()
        os.replace(draft, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
