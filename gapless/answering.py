"""Answers of commands: what a command calls, from functions of data and lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from gapless.question import Asked
from gapless.system import Answer, Session

__all__ = ["answering", "answering_in_time", "asking"]

Q = TypeVar("Q", bound=Asked)


class _Answering(Protocol):
    """What an answer of data and lines is made of."""

    @property
    def data(self) -> Mapping[str, object]:
        """Plain values."""

    @property
    def text(self) -> str:
        """Lines for people."""


class _AnsweringInTime(_Answering, Protocol):
    @property
    def left_out(self) -> str:
        """What there was no time for, in a line, empty where that is nothing."""


def answering(function: Callable[[], Callable[..., _Answering]]) -> Callable[[Mapping[str, object], Session], Answer]:
    """The answer of a command from a function that takes its fields by name."""

    def answer(values: Mapping[str, object], session: Session) -> Answer:
        made = function()(**values)
        return Answer(made.data, made.text)

    return answer


def answering_in_time(
    function: Callable[[], Callable[..., _AnsweringInTime]],
) -> Callable[[Mapping[str, object], Session], Answer]:
    """As `answering`, from a function that takes `options` too."""

    def answer(values: Mapping[str, object], session: Session) -> Answer:
        made = function()(**values, options=session.options)
        notes = (f"left out for want of time: {made.left_out}",) if made.left_out else ()
        return Answer(made.data, made.text, notes, is_complete=not notes)

    return answer


def asking(question: type[Q], answer: Callable[[Q, Session], Answer]) -> Callable[[Mapping[str, Any], Session], Answer]:
    """The answer of a command from a function of the question that its fields make."""
    return lambda values, session: answer(question(**values), session)
