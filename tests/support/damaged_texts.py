"""Random damage to the text of a TACCL-EF file, from one character to a few lines."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence

from gapless.errors import InputError
from gapless.io.taccl_ef import judge, parse_xml

ODD = [
    "<",
    ">",
    "/",
    '"',
    "'",
    "=",
    "\t",
    "\r",
    "\n",
    " ",
    "\0",
    "&amp;",
    "<!--",
    "-->",
    "é",
    "<tb>",
    "</gpu>",
    "<step/>",
]
NUMBERS = ["-1", "0", "1", "2", "31", "32", "64", "71", "127", "128", "32768", "999999999999", str(2**63), "1e3", ""]
WORDS = [
    "i",
    "o",
    "s",
    "r",
    "rcs",
    "rrc",
    "rrs",
    "rrcs",
    "cpy",
    "re",
    "nop",
    "allgather",
    "allreduce",
    "gather",
    "custom",
]


def damaged(text: str, chance: random.Random) -> str:
    """The text after one to three random changes."""
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        text = chance.choice(CHANGES)(text, chance)
    return text


def _span(text: str, chance: random.Random, most: int) -> tuple[int, int]:
    start = chance.randrange(len(text) + 1)
    return start, min(len(text), start + chance.randint(0, most))


def _cut(text: str, chance: random.Random) -> str:
    start, end = _span(text, chance, 60)
    return text[:start] + text[end:]


def _insert(text: str, chance: random.Random) -> str:
    start, _ = _span(text, chance, 0)
    return text[:start] + chance.choice(ODD) + text[start:]


def _repeat(text: str, chance: random.Random) -> str:
    start, end = _span(text, chance, 300)
    return text[:end] + text[start:end] + text[end:]


def _truncate(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text) + 1)]


def _move_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        lines.insert(chance.randrange(len(lines)), lines.pop(chance.randrange(len(lines))))
    return "".join(lines)


def _drop_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        del lines[chance.randrange(len(lines))]
    return "".join(lines)


def _value(text: str, chance: random.Random) -> str:
    """One attribute gets another value: a number, a word, or that of another attribute."""
    values = list(re.finditer(r'"([^"\n]*)"', text))
    if not values:
        return text
    old = chance.choice(values)
    new = chance.choice([chance.choice(NUMBERS), chance.choice(WORDS), chance.choice(values).group(1)])
    return text[: old.start(1)] + new + text[old.end(1) :]


CHANGES: Sequence[Callable[[str, random.Random], str]] = (
    _cut, _insert, _repeat, _truncate, _move_line, _drop_line, _value, _value, _value, _value,
)  # fmt: skip


def judged_in_s(text: str) -> tuple[float, str]:
    """How long the check of a text takes, and what it says in one line; only `InputError` is an answer too."""
    start_s = time.perf_counter()
    try:
        program, warnings = parse_xml(text, "text")
        said = judge(program, "executor", warnings=tuple(warnings)).summary()
    except InputError as error:
        said = str(error)
    return time.perf_counter() - start_s, said
