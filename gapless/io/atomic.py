"""Write a file whole or not at all: beside its place first, then renamed into it."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from gapless.errors import InputError
from gapless.processes.exit import undone_on_leaving

__all__ = [
    "check_writable",
    "is_special",
    "make_folder",
    "new_folder",
    "rescued",
    "write_bytes",
    "write_file",
    "write_lines",
    "write_text",
]

_ADVICE = "; choose another path"


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise `InputError` if `path` can't be written to, before long work is done for it."""
    target = Path(path)
    reason = ""
    if os.path.isdir(target):
        reason = "it is a folder"
    elif is_special(target):
        reason = "" if os.access(target, os.W_OK) else "no permission"
    elif not os.path.isdir(target.parent):
        reason = f"there is no folder {target.parent}"
    elif not os.access(target.parent, os.W_OK):
        reason = f"no permission to write in {target.parent}"
    if reason:
        raise InputError(f"cannot write {target}: {reason}; choose another path")


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder, and those that it lies in, where they are not there. Raises `InputError` where it can't be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}; choose another one") from None


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty folder beside `path`, which takes its place when the block ends well; what was there is removed then.

    Raises `InputError` where the place can't be written to; of a block that ends otherwise nothing is left.
    """
    target = Path(path).absolute()
    beside, old = (target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.{end}") for end in ("tmp", "old"))
    with undone_on_leaving(partial(shutil.rmtree, beside, ignore_errors=True)):
        try:
            beside.mkdir()
            yield beside
            if target.exists():
                target.rename(old)
            beside.rename(target)
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror or type(error).__name__}{_ADVICE}") from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)
            if old.exists() and not target.exists():
                old.rename(target)
            shutil.rmtree(old, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8 with newlines as they are; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path`; see `_write`."""
    _write(path, (data,))


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    """Write lines, each with its end, as UTF-8, one after the other: they need not be in memory together."""
    _write(path, (line.encode("utf-8") for line in lines))


def write_file(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], None]) -> None:
    """As `_write`, with what `fill` writes into an empty file, in which it may go back and forth, and read."""

    def pieces() -> Iterator[bytes]:
        with tempfile.TemporaryFile() as stream:
            fill(stream)
            stream.seek(0)
            while piece := stream.read(2**20):
                yield piece

    _write(path, pieces())


def _write(path: str | os.PathLike[str], pieces: Iterable[bytes]) -> None:
    """Write `pieces` to `path`; a file that is there is replaced only once the new one is complete.

    What is no regular file, such as `/dev/stdout` or a pipe, is written into and never replaced.

    Raises `InputError` where the folder is missing or may not be written to.
    """
    target = Path(path)
    try:
        if is_special(target):
            with target.open("wb") as stream:
                stream.writelines(pieces)
        else:
            _write_beside_then_rename(target, pieces)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot write {target}: {reason}{_ADVICE}") from error


def rescued(path: str, write: Callable[[str], object]) -> tuple[str, str | None]:
    """Call `write(path)`; where there is no room for it any more, write into the temporary folder.

    Returns where it is, and what was wrong with `path`, None if nothing. Raises `InputError` where neither will do.
    """
    try:
        write(path)
        return path, None
    except InputError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        instead = str(Path(tempfile.mkdtemp(prefix="gapless-")) / Path(path).name)
        try:
            write(instead)
        except InputError:
            raise error from None
        return instead, str(error).removesuffix(_ADVICE)


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether something is there that is neither a file nor a folder: a device, a pipe."""
    target = Path(path)
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


def _write_beside_then_rename(target: Path, pieces: Iterable[bytes]) -> None:
    if target.is_symlink():
        target = target.resolve()  # the link stays, what it points to is replaced
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    with undone_on_leaving(partial(beside.unlink, missing_ok=True)):
        try:
            with beside.open("xb") as stream:
                stream.writelines(pieces)
            if os.path.exists(target):
                beside.chmod(target.stat().st_mode & 0o777)
            beside.replace(target)
        except BaseException:  # Ctrl-C too must leave nothing behind
            beside.unlink(missing_ok=True)
            raise
