"""Short forms of large objects: a `repr` of one line, and what a notebook shows of them, in any theme of colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import fields
from html import escape
from typing import Any, Protocol

from gapless.report.text import described, words

__all__ = ["Brief", "BriefQuestion", "BriefText", "card_html", "facts", "one_line", "table_of"]

_MOST_CHARACTERS = 200
"""Of a `repr`: what a person reads at a glance, two lines of a notebook."""
_MOST_OF_A_VALUE = 60
_GOOD, _BAD = "#0072B2", "#D55E00"
_CELL = "text-align: left; vertical-align: top; padding: .1rem 1rem .1rem 0; background: none; border: 0"
"""Styles stand in the elements themselves: a notebook's own colours and fonts are inherited, light or dark."""


def one_line(text: str, most: int = _MOST_CHARACTERS) -> str:
    """The text in one line: line breaks and control characters become escapes, and what is too long is cut."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:most])
    return line if len(text) <= most and len(line) <= most else f"{line[: most - 3]}..."


def facts(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """The named values that are one number or text each, in words; where data come from, and hashes, are left out."""
    return [
        (words(name), one_line(described(name, value), _MOST_OF_A_VALUE))
        for name, value in values.items()
        if isinstance(value, str | int | float) and value != "" and not name.endswith(("source", "sha256"))
    ]


class Brief:
    """A dataclass whose `repr` is one line: arrays by type and shape, what has many entries by their number.

    The dataclass is made with `repr=False`, since it would get a `repr` of its own otherwise.
    """

    def __repr__(self) -> str:
        shown = ((field.name, getattr(self, field.name)) for field in fields(self) if field.repr)  # type: ignore[arg-type]
        inside = ", ".join(f"{name}={_brief(value)}" for name, value in shown if not _is_nothing(value))
        return f"{one_line(f'{type(self).__name__}({inside}', _MOST_CHARACTERS - 1)})"


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, Sized) and not len(value))


def _brief(value: Any) -> str:
    if getattr(value, "shape", ()):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, Sized) and not isinstance(value, str | Brief):
        return f"<{len(value)}>"
    return one_line(repr(value), _MOST_OF_A_VALUE)


class _HasText(Protocol):
    @property
    def text(self) -> str: ...


class BriefText(Brief):
    """A brief dataclass that has a `text` for people, which notebooks show."""

    def _repr_html_(self: _HasText) -> str:
        return f'<pre style="text-align: left">{escape(self.text)}</pre>'


class _Question(Protocol):
    @property
    def system(self) -> str: ...
    @property
    def description(self) -> dict[str, object]: ...


class BriefQuestion:
    """A problem whose `repr` is one line, and which notebooks show as a table of what is asked."""

    def __repr__(self: _Question) -> str:
        asked = ", ".join(f"{name} {value}" for name, value in facts(self.description))
        return f"<{one_line(f'{self.system} problem: {asked}', _MOST_CHARACTERS - 2)}>"

    def _repr_html_(self: _Question) -> str:
        return card_html(f"{self.system}: the question", facts(self.description))


def card_html(title: str, rows: Sequence[tuple[str, str]], is_good: bool = True, below: str = "") -> str:
    """A title, and rows of a name and a value in words, with a coloured edge; `below` is HTML that follows."""
    edge = f"border-left: .3rem solid {_GOOD if is_good else _BAD}; padding: 0 0 0 .8rem; margin: .4rem 0"
    return f'<div style="{edge}"><div><b>{escape(title)}</b></div>{table_of(rows)}{below}</div>'


def table_of(rows: Sequence[Sequence[str]], titles: Sequence[str] = ()) -> str:
    """A small table; the first cell of each row names it."""
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(title)}</th>' for title in titles)
    lines = [f"<tr>{head}</tr>"] if titles else []
    for first, *others in rows:
        cells = "".join(f'<td style="{_CELL}">{escape(value)}</td>' for value in others)
        name = f'<th scope="row" style="{_CELL}; white-space: nowrap">{escape(first)}</th>'
        lines.append(f'<tr style="background: none">{name}{cells}</tr>')
    style = "border-collapse: collapse; border: 0; margin: .2rem 0; font-size: inherit"
    return f'<table style="{style}">{"".join(lines)}</table>'
