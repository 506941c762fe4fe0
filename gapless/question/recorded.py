"""Questions in plain words: what a plan's file keeps of the fields that were said, so that they can be asked again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from gapless.errors import InputError
from gapless.question.fields import Field, Share

T = TypeVar("T")

__all__ = ["file_digest", "kept_question", "remember", "said_of"]

_WORDS = "_gapless_said"
"""The attribute of a problem that holds the words it was asked in; a changed copy of the problem is without."""
_BLOCK_BYTES = 2**20
_MOST_HASHED = 2**28
"""Bytes of a named file that the digest of a question is made of, beside its size: a second's work."""


class _Described(Protocol):
    @property
    def description(self) -> dict[str, object]:
        """What was asked, in plain values."""


def remember(problem: T, fields: Sequence[Field], values: Mapping[str, object]) -> T:
    """The problem, which knows from here on in which words it was asked. `values`: of the fields, read."""
    said = {
        field.name: values[field.name]
        for field in fields
        if field.is_asked and not _is_left_out(values.get(field.name), field.default)
    }
    files = tuple(str(said[field.name]) for field in fields if field.may_be_file and field.name in said)
    try:
        words = {name: _plain(value) for name, value in said.items()}
        object.__setattr__(problem, _WORDS, (words, files))
    except (TypeError, AttributeError):  # an object of Python, which has no words; a class without room for them
        pass
    return problem


def said_of(problem: object) -> Mapping[str, object] | None:
    """The fields that were said of a problem, in plain values; None where there are no words for it."""
    known = getattr(problem, _WORDS, None)
    return None if known is None else dict(known[0])


def kept_question(problem: _Described) -> dict[str, object] | None:
    """What a plan's file keeps of its question, None where there are no words for it.

    `fields`: what was said. `sha256`: of what the problem says of itself and of the files that it names, so that
    another question in the same words is known for one.
    """
    words = said_of(problem)
    if words is None:
        return None
    _, files = getattr(problem, _WORDS)
    digests = {path: file_digest(path, _MOST_HASHED) for path in files if os.path.isfile(path)}
    text = json.dumps({"description": problem.description, "files": digests}, sort_keys=True, default=str)
    return {"fields": words, "sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}


def file_digest(path: str | Path, most_bytes: int | None = None) -> str:
    """The SHA-256 of a file's content, or of its size and its first bytes. Raises `InputError` if it can't be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            if most_bytes is not None:
                digest.update(str(os.fstat(stream.fileno()).st_size).encode())
            while (most_bytes is None or stream.tell() < most_bytes) and (block := stream.read(_BLOCK_BYTES)):
                digest.update(block)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return digest.hexdigest()


def _is_left_out(value: object, default: object) -> bool:
    """Whether a field says no more than its default. An array, say, has another type, and isn't compared."""
    return value is None or (type(value) is type(default) and bool(value == default))


def _plain(value: object) -> object:
    """A value as files hold it. Raises `TypeError` for an object that has no words."""
    if isinstance(value, Share):
        return f"{value.ratio!r}x"
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, str | int | float):
        return value
    raise TypeError(type(value).__name__)
