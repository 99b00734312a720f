"""The app, and its one error boundary: whatever goes wrong becomes one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from geoattn._core import read_limit as limits
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.cli.cite import cite
from geoattn.cli.curvature import curvature
from geoattn.cli.doctor import doctor
from geoattn.cli.interrupt import handled_interrupt
from geoattn.cli.printable import printable
from geoattn.cli.report import report
from geoattn.cli.simulate import simulate
from geoattn.cli.smoothness import smoothness
from geoattn.cli.study import study
from geoattn.cli.train import train

__all__ = ["app"]

BAD_INPUT, INTERRUPTED = 2, 130


class _InterruptedError(Exception):
    """Ctrl-C, renamed before the frameworks below turn it into messages of their own."""


class _Boundary(TyperGroup):
    """A group of verbs that turns errors into one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()  # a full disk or a closed pipe shows here at the latest
            return answer
        except KeyboardInterrupt:
            raise _InterruptedError from None
        except BrokenPipeError:  # `geoattn ... | head`: the reader has what it wants
            _abandon_stdout()
            return 0

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Parse, run, exit."""
        code = _guarded(lambda: super(_Boundary, self).main(*args, standalone_mode=False, **extra))
        if standalone_mode:
            sys.exit(code)
        return code


def _guarded(run: Any) -> int:
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except _InterruptedError:
        handled_interrupt()
        return _say("interrupted", INTERRUPTED)
    except GeoattnError as error:
        return _say(f"error: {error}", BAD_INPUT)
    except MemoryError as error:
        return _say(f"error: not enough memory ({error or 'no detail'}). Sample edges with --edges N.", BAD_INPUT)
    except OSError as error:
        _abandon_stdout()
        return _say(f"error: cannot write the output: {error.strerror or error}.", BAD_INPUT)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise  # a bug: the traceback is what we want to see
        # A usage error of the parser. Its class lives in click or in typer's own copy of it, by version.
        context = getattr(error, "ctx", None)
        hint = f" Try '{context.command_path} --help'." if context else ""
        message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        return _say(f"error: {message}{hint}", BAD_INPUT) if message else BAD_INPUT  # no message: help was shown


def _say(message: str, code: int) -> int:
    print(f"geoattn: {printable(message)}", file=sys.stderr)
    return code


def _abandon_stdout() -> None:
    """Python flushes stdout once more when it exits; let that go nowhere."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as under a test runner
        pass


app = typer.Typer(
    cls=_Boundary,
    help="Measure transformers through the geometry of their attention.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel="Measure")(report)
app.command(rich_help_panel="Measure")(curvature)
app.command(rich_help_panel="Measure")(smoothness)
app.command(rich_help_panel="Measure")(simulate)
app.command(rich_help_panel="Train and test")(train)
app.command(rich_help_panel="Train and test")(study)
app.command(rich_help_panel="About")(cite)
app.command(rich_help_panel="About")(doctor)


def _show_version(wanted: bool) -> bool:
    if wanted:
        print(f"geoattn {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    read_limit: Annotated[
        str | None,
        typer.Option(
            help="Memory that the content of a file may take, such as 8GB. Default: 2GB, or four times the file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    if read_limit is not None:
        os.environ[limits.LIMIT_VARIABLE] = read_limit  # for the processes of a study, too
    limits.read_limit()  # a limit that is no size is an error before the work
