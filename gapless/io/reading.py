"""Reading files that come from elsewhere: what one may take, and how what is wrong with it is said.

Every container has one reader (`text_file`, `record` for JSON, `xml_tree`, `arrays` for `.npz`). Each asks here before
it holds or inflates what a file declares. docs/formats.md has the limits.
"""

from __future__ import annotations

import csv
import gzip
import os
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gapless.errors import InputError
from gapless.units import format_bytes, parse_bytes

__all__ = ["VARIABLE", "Limits", "file_errors", "first_line", "opened"]

VARIABLE = "GAPLESS_READ_MEMORY"
"""Of the environment: a size, for files that may take more than what follows."""
_SMALL_BYTES = 10**7
_HELD_BYTES, _HELD_PER_BYTE = 115 * 10**6, 16
"""Of a small file, and for each byte that it has beyond that: numbers in JSON take at most eleven bytes a character."""
_INFLATED_BYTES, _INFLATED_PER_BYTE = 2**25, 100
"""Columns of equal numbers shrink to a thousandth, so a small file may inflate at any rate; a large one is no such."""

_UNREADABLE = (
    gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, struct.error, csv.Error, EOFError, ValueError, MemoryError,
    OverflowError, RuntimeError, TypeError, SyntaxError, tokenize.TokenError,
)  # fmt: skip
"""The last four for headers that are no Python, and for archives with a password or of a later version."""


@dataclass(frozen=True)
class Limits:
    """What reading a file may take. `where`: what errors call it. `text_bytes`: of a text that is read as a whole.
    `held_bytes`: in memory, at once. `inflated_bytes`: of all that is packed in it together.
    """

    where: str
    text_bytes: int
    held_bytes: int
    inflated_bytes: int

    way_out = f"allow more with {VARIABLE}, as in {VARIABLE}=4GB"

    @classmethod
    def of(cls, where: str, size_bytes: int) -> Limits:
        """Of a file of so many bytes."""
        asked = os.environ.get(VARIABLE, "")
        least = parse_bytes(asked, VARIABLE) if asked else 0
        more = _HELD_PER_BYTE * max(0, size_bytes - _SMALL_BYTES)
        inflated = max(_INFLATED_BYTES, _INFLATED_PER_BYTE * size_bytes, least)
        return cls(where, max(_SMALL_BYTES + more, least), max(_HELD_BYTES + more, least), inflated)

    @classmethod
    def of_file(cls, where: str, stream: IO[bytes]) -> Limits:
        """Of an open file; a pipe has no size, and counts as a small one."""
        return cls.of(where, os.fstat(stream.fileno()).st_size)

    @classmethod
    def none(cls, where: str) -> Limits:
        """Of a file that this process has written itself."""
        return cls(where, sys.maxsize, sys.maxsize, sys.maxsize)

    def check_held(self, what: str, size_bytes: int) -> None:
        """Raise `InputError` for more than the file may take in memory."""
        self._check(what, "memory", size_bytes, self.held_bytes)

    def check_inflated(self, what: str, size_bytes: int) -> None:
        """Raise `InputError` for more than may be packed in the file."""
        self._check(what, "space once inflated", size_bytes, self.inflated_bytes)

    def _check(self, what: str, of: str, size_bytes: int, most_bytes: int) -> None:
        if size_bytes > most_bytes:
            rule = f"must take at most {format_bytes(most_bytes)} of {of} in a file of its size"
            raise InputError(f"{self.where}: {what} {rule}, takes {format_bytes(size_bytes)}; {self.way_out}")


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[IO[bytes], Limits]]:
    """A file that is open for reading, and what it may take."""
    with file_errors(path), Path(path).open("rb") as stream:
        yield stream, Limits.of_file(str(path), stream)


@contextmanager
def file_errors(path: str | Path) -> Iterator[None]:
    """Turn what reading a file can raise into an `InputError` of one line."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: must be a UTF-8 text file, got byte {error.object[error.start]:#04x}") from None
    except _UNREADABLE as error:
        raise InputError(f"{path}: not readable: {first_line(error)}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def first_line(error: BaseException) -> str:
    """What a library says, in one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
