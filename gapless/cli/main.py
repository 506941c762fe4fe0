"""`gapless`: the exit codes, and the one place where an error becomes a line.

The commands are imported in `main`, so that Ctrl-C ends in a line from the very start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from gapless.cli.parser import EXIT_BAD_INPUT
from gapless.errors import GaplessError

__all__ = ["main", "script"]

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def script() -> NoReturn:
    """`gapless` in a shell. After the second Ctrl-C, nothing waits for the threads of solvers that still run."""
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and written: Ctrl-C has nothing left to stop
    if code == EXIT_INTERRUPTED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    from gapless.solvers.interruptible import leave

    leave(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        from gapless.cli.commands import build_parser

        arguments = build_parser().parse_args(argv)
        arguments.command_line = list(sys.argv[1:] if argv is None else argv)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except GaplessError as error:
        print(f"gapless: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _close_stdout()
        return 0
    except OSError as error:
        if error.filename is not None:  # no print
            raise
        _close_stdout()
        print(f"gapless: error: cannot write to stdout: {error.strerror or error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except Exception as error:
        if not _is_of_interrupt(error):
            raise
        return _interrupted()


def _interrupted() -> int:
    print("gapless: interrupted; no half-written file is left", file=sys.stderr)
    return EXIT_INTERRUPTED


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what an error comes from: in the import of a C++ library it ends as an ImportError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _close_stdout() -> None:
    """Nothing more is written to it, nor at the end of the process what it still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    script()
