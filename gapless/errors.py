"""The exception tree of gapless.

::

    GaplessError
    ├── InputError          what the user gave is wrong; the message is one line (command line: exit 2)
    │   └── ModelError      a model or graph was built wrongly
    ├── OutOfMemoryError    a MemoryError as well
    ├── DifferenceError     a planned training step differs from eager's by more than the tolerance
    ├── RunError            a process of a run failed, was killed, or waited for too long
    └── SolverError         a backend crashed or is not installed

That a problem is infeasible, or that no plan was found in time, is an answer, not an error: see `gapless.Status`.
"""

from __future__ import annotations

__all__ = [
    "DifferenceError", "GaplessError", "InputError", "ModelError", "Note", "OutOfMemoryError", "RunError",
    "SolverError",
    "lacks_memory",
    "must_be",
]  # fmt: skip


class GaplessError(Exception):
    """Base of every exception that gapless raises on purpose.

    Its text is one line: names from files are quoted in it, and line breaks and control characters become escapes.
    """

    def __str__(self) -> str:
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in super().__str__())


class InputError(GaplessError, ValueError):
    """The input breaks a rule; the message names the thing, the rule, the value and the way out, in one line."""


class ModelError(InputError):
    """A model was put together wrongly: shapes that do not fit, bounds that cross, names used twice."""


class OutOfMemoryError(GaplessError, MemoryError):
    """There was too little memory; says for what."""


class SolverError(GaplessError, RuntimeError):
    """A solver backend is missing or failed; says which and what to do."""


class DifferenceError(GaplessError, RuntimeError):
    """A planned training step differs from eager's by more than the tolerance; says which tensor, and by how much."""


class RunError(GaplessError, RuntimeError):
    """A process of a run failed, was killed, or waited for too long; says which."""


def must_be(what: str, is_right: bool, rule: str, value: object) -> None:
    """Raise `InputError` where somebody gave an object of another type than the rule says."""
    if not is_right:
        raise InputError(f"{what}: must be {rule}, got {type(value).__name__}")


def lacks_memory(error: BaseException) -> bool:
    """Whether too little memory is what an error comes from: threads and shared libraries say it in words of theirs."""
    words = ("can't start new thread", "failed to map segment", "cannot allocate memory")
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in words)


class Note(UserWarning):
    """What a solve has to say beside its answer; the command line prints it."""
