"""The command line: ``geoattn curvature | cite | doctor``."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command in ``sys.argv`` and exit: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    try:
        from geoattn.cli.app import app

        app(prog_name="geoattn")
    except KeyboardInterrupt:  # before a verb began
        from geoattn.cli.interrupt import handled_interrupt

        os.write(sys.stderr.fileno(), b"geoattn: interrupted\n")
        handled_interrupt()
        sys.exit(130)
