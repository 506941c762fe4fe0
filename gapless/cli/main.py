"""`gapless`: the exit codes, and the one place where an error becomes a line.

All else is imported in `main`, so that a signal ends in a line from the very start.
"""

import os
import sys

from gapless.cli.signals import EXIT_SIGNAL, is_over, take_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main", "script"]


_FEW_COLLECTIONS = 100_000
"""Objects that are made before garbage is looked for: imports make many, and all of them stay."""


def script() -> "NoReturn":
    """`gapless` in a shell: signals end in a line and an exit code."""
    _open_closed_streams()
    take_over()
    import gc

    gc.set_threshold(_FEW_COLLECTIONS)
    code = main()
    is_over()
    from gapless.solvers.interruptible import leave

    leave(code)


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run one command; returns the exit code."""
    try:
        from gapless.cli.commands import build_parser

        arguments = build_parser().parse_args(argv)
        arguments.command_line = list(sys.argv[1:] if argv is None else argv)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:  # called from a program that has left its signals alone
        print("gapless: interrupted; no half-written file is left", file=sys.stderr)
        return EXIT_SIGNAL + 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _close_stdout()
        return 0
    except Exception as error:
        line, code = _line_of(error)
        print(f"gapless: error: {line}", file=sys.stderr)
        return code


def _line_of(error: Exception) -> tuple[str, int]:
    """An error as a line, with its exit code; raises it where it is none that anybody expects."""
    from gapless.cli.parser import EXIT_BAD_INPUT
    from gapless.errors import GaplessError, lacks_memory

    if lacks_memory(error):
        from gapless.cli.output import EXIT_CODES
        from gapless.solution import Status

        return "out of memory; less is needed with --threads 1, or with a smaller question", EXIT_CODES[
            Status.NO_SOLUTION
        ]
    if isinstance(error, GaplessError):
        return str(error), EXIT_BAD_INPUT
    if isinstance(error, OSError) and error.filename is None:  # a print
        _close_stdout()
        return f"cannot write to stdout: {error.strerror or error}", EXIT_BAD_INPUT
    raise error


def _open_closed_streams() -> None:
    """What the shell has closed (`>&-`) goes nowhere, and no file that is opened later gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def _close_stdout() -> None:
    """Nothing more is written to it, nor at the end of the process what it still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    script()
