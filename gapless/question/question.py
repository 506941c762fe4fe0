"""Question: what is asked of a system, as one frozen dataclass that says all of its fields once.

A field's type, limits, default, help and option are metadata of the dataclass field (`asked`). The command line,
sweeps, schemas, pages and Python read them there, by `fields_of`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gapless.errors import InputError
from gapless.question.fields import Field, Kind

__all__ = ["Asked", "asked", "fields_of", "from_question", "picked", "said"]

_METADATA = "field"

Values = ParamSpec("Values")
Q = TypeVar("Q", bound="Asked")
T = TypeVar("T")


def asked(
    kind: Kind, help: str, default: Any = None, *, otherwise: Any = None, is_required: bool = False, metavar: str = "",
    names: Callable[[], Iterable[str]] | None = None, group: str = "problem", short: str = "", extra: str = "",
    is_asked: bool = True, called: str = "",
) -> Any:  # fmt: skip
    """A field of a question, as the dataclass has it; the arguments are those of `gapless.question.fields.Field`."""
    return said(
        Field("", kind, help, default, is_required, metavar, names, group, short, extra, is_asked, otherwise, called)
    )


def said(field: Field) -> Any:
    """A field that several questions have, as the dataclass of one of them has it."""
    return dataclasses.field(default=field.default, metadata={_METADATA: field})


@dataclass(frozen=True)
class Asked:
    """A question: every value is read by its field's kind, so that texts and objects mean what they mean in the shell.

    None stands for what isn't said. Raises `InputError` that names the field.
    """

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if value is None and field.is_required:
                raise InputError(f"{field.name}: must be given: {field.help}")
            read = field.default if value is None else field.read(value)
            object.__setattr__(self, field.name, read)


def fields_of(question: type[Asked]) -> tuple[Field, ...]:
    """The fields of a question: what stands first, then its own, then those of the questions that it is made of."""
    own = inspect.get_annotations(question)
    ordered = sorted(dataclasses.fields(question), key=lambda one: (one.kw_only, one.name not in own))
    return tuple(replace(one.metadata[_METADATA], name=one.name) for one in ordered)


def picked(question: type[Asked], *names: str, group: str = "") -> tuple[Field, ...]:
    """Some fields of a question, in the order of `names`, for a command that asks for the same; under another heading
    where `group` is given.
    """
    known = {field.name: field for field in fields_of(question)}
    return tuple(replace(known[name], group=group or known[name].group) for name in names)


def from_question(question: Callable[Values, Q]) -> Callable[[Callable[[Q], T]], Callable[Values, T]]:
    """Makes a function of a question one of its fields, with their names, types and defaults."""

    def decorated(make: Callable[[Q], T]) -> Callable[Values, T]:
        @wraps(make)
        def made(*values: Values.args, **by_name: Values.kwargs) -> T:
            return make(question(*values, **by_name))

        return made

    return decorated
