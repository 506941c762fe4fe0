"""Fields: what a question says, one by one. Each is an option of a command, an argument in Python, a field of a sweep.

A field's kind reads a value: a text as people type it, or what Python has instead (a number, an object). The same
value means the same everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gapless.errors import InputError
from gapless.options import MOST_GAP, MOST_SECONDS, MOST_THREADS
from gapless.units import (
    MOST_BYTES,
    format_bandwidth,
    format_bytes,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_seconds,
)

__all__ = [
    "SOLVING",
    "Bandwidth",
    "Choice",
    "Field",
    "Flag",
    "Kind",
    "Listed",
    "Number",
    "Object",
    "Ranks",
    "Seconds",
    "Share",
    "Size",
    "SizeOrShare",
    "Text",
    "Whole",
    "WholeOrShare",
    "meant",
    "read_fields",
    "read_values",
]

_MOST_WHOLE = 2**31 - 1
_MOST_RANKS = 10**6
MOST_TIMES = 1000
"""The largest `Share`: more than all is the same as no limit."""


class Kind(Protocol):
    """What a field may hold; calling it reads a value. `InputError` without the field's name if it breaks the rule."""

    def __call__(self, value: object) -> Any:
        """The value, read."""


@dataclass(frozen=True)
class Whole:
    """A whole number in `minimum`..`maximum`."""

    minimum: int
    maximum: int = _MOST_WHOLE

    def __call__(self, value: object) -> int:
        """The number."""
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if hasattr(number, "__index__") and not isinstance(number, bool):
            number = int(number.__index__())
            if self.minimum <= number <= self.maximum:
                return number
        raise InputError(f"must be a whole number in {self.minimum}..{self.maximum}, got {value!r}")


@dataclass(frozen=True)
class Number:
    """A finite number of at least (if strict, above) `minimum`, at most `maximum`."""

    minimum: float = -math.inf
    strict: bool = False
    maximum: float = math.inf

    def __call__(self, value: object) -> float:
        """The number."""
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        is_enough = number > self.minimum if self.strict else number >= self.minimum
        if math.isfinite(number) and is_enough and number <= self.maximum:
            return number
        most = "" if self.maximum == math.inf else f" and <= {self.maximum:g}"
        raise InputError(f"must be a number {'>' if self.strict else '>='} {self.minimum:g}{most}, got {value!r}")


@dataclass(frozen=True)
class Scaled:
    """A quantity that texts give with a unit; a number is in the unit that `parse` gives."""

    parse: Callable[[str, str], float]
    limits: Number
    form: Callable[[float], str] = format_seconds

    def __call__(self, value: object) -> Any:
        """Seconds, or bytes a second."""
        if not isinstance(value, str):
            return self.limits(value)
        try:
            return self.limits(self.parse(value, ""))
        except InputError as error:
            raise InputError(str(error).removeprefix(": ")) from None

    def said(self, value: float) -> str:
        """The quantity as a text that this reads."""
        return self.form(value).replace(" ", "")


@dataclass(frozen=True)
class Size:
    """A size in bytes: a whole number, or a text such as 1MB (10^6) or 1MiB (2^20)."""

    minimum: int = 1

    def __call__(self, value: object) -> int:
        """The bytes."""
        if not isinstance(value, str):
            return Whole(self.minimum, MOST_BYTES)(value)
        if self.minimum == 0 and value.strip() == "0":
            return 0
        try:
            return parse_bytes(value, "")
        except InputError as error:
            raise InputError(str(error).removeprefix(": ")) from None

    def said(self, value: int) -> str:
        """The size as a text that this reads."""
        for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if value and value % scale == 0:
                return f"{value // scale}{unit}"
        return format_bytes(value).replace(" ", "")


@dataclass(frozen=True)
class Share:
    """So many times of something that the question says, such as the memory of a step without any saving."""

    ratio: float


@dataclass(frozen=True)
class SizeOrShare:
    """A size in bytes, or a `Share`: 0.5x, half of what there would be otherwise."""

    def __call__(self, value: object) -> int | Share:
        """The bytes, or the share."""
        share = _share(value)
        if share is not None:
            return share
        try:
            return Size()(value)
        except InputError as error:
            raise InputError(f"{error}; a share is written 0.8x") from None


@dataclass(frozen=True)
class WholeOrShare:
    """A whole number of at least 1, or a `Share`: 0.5x, half of what the question says otherwise."""

    def __call__(self, value: object) -> int | Share:
        """The number, or the share."""
        share = _share(value)
        return Whole(1)(value) if share is None else share


def _share(value: object) -> Share | None:
    if isinstance(value, str) and value.endswith("x"):
        return Share(Number(0, strict=True, maximum=MOST_TIMES)(value[:-1]))
    return value if isinstance(value, Share) else None


@dataclass(frozen=True)
class Text:
    """A text, most often a name or a file."""

    def __call__(self, value: object) -> str:
        """The text; a path counts as one."""
        if hasattr(value, "__fspath__"):
            value = str(value)
        if not isinstance(value, str) or "\0" in value:
            raise InputError(f"must be a text, got {value!r}")
        return value


@dataclass(frozen=True)
class Choice:
    """One of a few texts. `others`: in a few words those that come after the first `shown`, where they are many."""

    choices: tuple[str, ...]
    shown: int | None = None
    others: str = ""

    def __call__(self, value: object) -> str:
        """The text."""
        if value not in self.choices or not isinstance(value, str):
            from gapless.io.record import suggestion

            hint = suggestion(value, self.choices) if isinstance(value, str) else ""
            rule = f"must be one of {', '.join(self.choices[: self.shown])}{self.others}, got {value!r}"
            raise InputError(f"{rule}; {hint}" if hint else rule)
        return value


@dataclass(frozen=True)
class Object:
    """A text, or an object of Python that stands for the same; `types` are their dotted names."""

    types: tuple[str, ...]
    kind: Kind = Text()

    def __call__(self, value: object) -> Any:
        """The text read, or the object."""
        names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__}
        if not isinstance(value, str) and names & set(self.types):
            return value
        try:
            return self.kind(value)
        except InputError as error:
            if isinstance(value, str):
                raise
            others = " or ".join(["a text", *(f"a {name.rpartition('.')[2]}" for name in self.types)])
            raise InputError(f"must be {others}, got {type(value).__name__}") from error


@dataclass(frozen=True)
class Listed:
    """Several of a kind: a sequence, or a text with commas (or what separates them) between them."""

    kind: Kind
    separator: str = ","

    def __call__(self, value: object) -> tuple[Any, ...]:
        """The values."""
        values = value.split(self.separator) if isinstance(value, str) else value
        if not isinstance(values, Sequence) or isinstance(values, bytes) or not values or "" in values:
            between = "commas" if self.separator == "," else self.separator
            raise InputError(f"must be values with {between} between them, got {value!r}")
        return tuple(self.kind(entry) for entry in values)


@dataclass(frozen=True)
class Ranks:
    """Numbers of ranks: a text of numbers and ranges (0-7,16), one number, or several."""

    def __call__(self, value: object) -> tuple[int, ...]:
        """The ranks, each once, ascending."""
        if not isinstance(value, str):
            numbers = value if isinstance(value, Sequence) and not isinstance(value, bytes) and len(value) else (value,)
            return tuple(sorted({Whole(0)(number) for number in numbers}))
        found: set[int] = set()
        for entry in value.split(","):
            pair = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", entry)
            if pair is None or not 0 <= (width := int(pair[2] or pair[1]) - int(pair[1])) < _MOST_RANKS:
                raise InputError(f"must be ranks, such as 5 or 0-7,16, got {value!r}")
            found.update(range(int(pair[1]), int(pair[1]) + width + 1))
        return tuple(sorted(found))


@dataclass(frozen=True)
class Flag:
    """True or false; on the command line it is said by its name alone."""

    def __call__(self, value: object) -> bool:
        """The truth."""
        if not isinstance(value, bool):
            raise InputError(f"must be true or false, got {value!r}")
        return value


def Seconds() -> Scaled:  # noqa: N802  # a kind like the others
    """A time such as 10us; a number is in seconds."""
    return Scaled(parse_seconds, Number(0, maximum=MOST_SECONDS))


def Bandwidth() -> Scaled:  # noqa: N802
    """A bandwidth such as 10Gbps; a number is in bytes a second."""
    return Scaled(parse_bandwidth, Number(1e-3, maximum=1e15), format_bandwidth)  # trials have units of their own


@dataclass(frozen=True)
class Field:
    """One thing that a question says.

    `default`: what stands where it is not said; None leaves the choice to the question. `metavar`: what the help puts
    for its value; one with FILE in it may name a file. `names`: what it may say, for completion. `group`: the heading
    in the help. `short`: its letter on the command line. `extra`: the extra that is needed where it is said.
    `is_asked`: whether it is a part of what is asked, which a plan keeps, rather than of how.
    `otherwise`: what stands where it is not said and `default` is None: in words, or a value of the kind. `called`: its
    option where that isn't its name, which Python keeps for itself.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    is_required: bool = False
    metavar: str = ""
    names: Callable[[], Iterable[str]] | None = None
    group: str = "problem"
    short: str = ""
    extra: str = ""
    is_asked: bool = True
    otherwise: Any = None
    called: str = ""

    @property
    def explained(self) -> str:
        """The help, with what stands where nothing is said."""
        if isinstance(self.otherwise, str):
            return f"{self.help} (default: {self.otherwise})"
        said = _said(self.kind, self.default if self.otherwise is None else self.otherwise)
        return f"{self.help} (default {said})" if said else self.help

    @property
    def option(self) -> str:
        """Its name on the command line; a flag that is true by default is said in order to turn it off."""
        turns_off = isinstance(self.kind, Flag) and self.default is True
        return f"--{'no-' if turns_off else ''}{(self.called or self.name).replace('_', '-')}"

    @property
    def may_be_file(self) -> bool:
        """Whether its value may name a file, which is a part of the question then."""
        return "FILE" in self.metavar

    @property
    def is_numeric(self) -> bool:
        """Whether files give it as a number; all others are texts, as on the command line."""
        return isinstance(self.kind, Number | Whole)

    def read(self, value: object) -> Any:
        """The value, read. Raises `InputError` that names the field."""
        try:
            return self.kind(value)
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from None


def _said(kind: Kind, value: Any) -> str:
    """A default as people would type it; empty where there is none."""
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, tuple):
        return ",".join(_said(kind.kind if isinstance(kind, Listed) else kind, one) for one in value)
    if isinstance(kind, Scaled | Size):
        return kind.said(value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


SOLVING = (
    Field("time_limit", Number(0, True, MOST_SECONDS), "seconds of wall time", otherwise="by system", metavar="S"),
    Field(
        "gap", Number(0, maximum=MOST_GAP), "stop at this proven gap, 0.05 = 5 %", otherwise="by system", metavar="G"
    ),
    Field("threads", Whole(0, MOST_THREADS), "how many threads; 0 takes every core", 0, metavar="N"),
    Field("seed", Whole(0), "seed of what is drawn at random", 0, metavar="N"),
    Field("solver", Text(), "one of `gapless list solvers`", otherwise="by system", metavar="NAME"),
    Field(
        "parameters",
        Text(),
        "a TOML file with parameters of the searches: see `gapless list parameters`",
        metavar="FILE",
    ),
)
"""How a question is to be solved, which is no part of it."""


def read_values(fields: Sequence[Field], values: Mapping[str, object], what: str) -> dict[str, Any]:
    """The values that are given (None counts as not given), read.

    Raises `InputError` that names the argument for one that is unknown or breaks its rule; `what` is whose they are.
    """
    known = {field.name: field for field in fields}
    for name in values:
        if name not in known:
            raise InputError(f"{name}: is no argument of {what}; {meant(name, known)}")
    return {name: known[name].read(value) for name, value in values.items() if value is not None}


def read_fields(fields: Sequence[Field], values: Mapping[str, object], what: str) -> dict[str, Any]:
    """As `read_values`, with the defaults of the fields that are not given. A field that must be given is."""
    found = read_values(fields, values, what)
    for field in fields:
        if field.is_required and field.name not in found:
            raise InputError(f"{field.name}: must be given: {field.help}")
    return {field.name: found.get(field.name, field.default) for field in fields}


def meant(name: str, known: Collection[str]) -> str:
    """What somebody may have meant who named a field that isn't there."""
    from gapless.io.record import suggestion

    return suggestion(name, known) or f"known are {', '.join(sorted(known))}"
