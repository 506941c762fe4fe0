"""Text files, plain or gzipped: a whole one, one line by line, or one of TOML."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from gapless.errors import InputError
from gapless.io.reading import Limits, opened
from gapless.units import format_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["MOST_LINE", "Lines", "load_text", "load_toml", "text_lines"]

MOST_LINE = 2**20
"""Characters of a line of a table."""
_MOST_TOML = 2**21
"""Bytes: sweeps and parameters are written by hand, and TOML is read by Python code."""
_MOST_DOTTED = 32
"""Parts of a key in TOML; reading one takes the square of their number."""

_DIGITS = re.compile(r"[0-9][0-9_]{4299}")
"""Python reads no longer numbers, and TOML's library matches them with a hundred bytes a digit."""
_GZIP = b"\x1f\x8b"
_DOTTED = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MOST_DOTTED}}}""")


def load_text(path: str | Path, most_bytes: int | None = None) -> str:
    """The text in a file, plain or gzipped.

    `most_bytes`: of the text; by default what a file of its size may hold. Raises `InputError` for a file that is
    missing, unreadable, too large, or no UTF-8.
    """
    with opened(path) as (stream, limits):
        most = limits.text_bytes if most_bytes is None else most_bytes
        with _plain(stream) as plain:
            data = plain.read(most + 1)
        if len(data) > most:
            rule = f"must be a text of at most {format_bytes(most)}"
            raise InputError(
                f"{path}: {rule}, plain or inflated" + (f"; {limits.way_out}" if most_bytes is None else "")
            )
        return data.decode("utf-8")


class Lines:
    """The lines of a file, each with its end, as `csv` wants them. `characters`: how many were read so far."""

    def __init__(self, stream: IO[bytes], limits: Limits, is_packed: bool) -> None:
        self.characters = 0
        self._text = TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        self._limits, self._is_packed = limits, is_packed

    def __iter__(self) -> Iterator[str]:
        limits, read = self._limits, self._text.readline
        while line := read(MOST_LINE):
            self.characters += len(line)
            if len(line) == MOST_LINE:
                raise InputError(f"{limits.where}: lines must have fewer than {MOST_LINE} characters")
            if self._is_packed:
                limits.check_inflated("the text", self.characters)
            yield line


@contextmanager
def text_lines(path: str | Path) -> Iterator[Lines]:
    """The lines of a file, plain or gzipped; a byte order mark is left out.

    Raises `InputError` as `load_text` does, for a line of `MOST_LINE` characters or more, and for a file that inflates
    to more than one of its size may.
    """
    with opened(path) as (stream, limits), _plain(stream) as plain:
        yield Lines(plain, limits, plain is not stream)


@contextmanager
def _plain(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """The stream, or what is gzipped in it."""
    if stream.peek(2)[:2] != _GZIP:  # type: ignore[attr-defined]
        yield stream
        return
    with gzip.open(stream) as inside:
        yield inside  # type: ignore[misc]


def load_toml(path: str | Path) -> dict[str, object]:
    """The content of a TOML file. Raises `InputError` for one that can't be read."""
    text = load_text(path, _MOST_TOML)
    if _DOTTED.search(text) or _DIGITS.search(text):
        raise InputError(f"{path}: not TOML: keys must have fewer than {_MOST_DOTTED} parts, numbers 4300 digits")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{path}: not readable: nested too deeply") from None
    except ValueError as error:  # also a whole number of thousands of digits
        raise InputError(f"{path}: not TOML: {error}") from None
