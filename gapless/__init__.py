"""gapless: optimisation problems for the scheduling of ML systems, solved and replayed.

`gapless.<system>.solve(...)` asks a system in the words of the command line (`gapless list systems`), and returns a
`Result`: `plan.summary()`, `plan.save(path)`, `plan.events_frame()`, `plan.plot()`; `gapless.load(path)` reads it back.
"""

import os as _os

# A checkout keeps solvers/, encodings/, topologies/ and profiles/ beside this folder; an installed package has them
# inside it. Looking one level up makes the checkout work without an install.
_checkout = _os.path.dirname(_os.path.dirname(_os.path.realpath(__file__)))
if _os.path.isfile(f"{_checkout}/pyproject.toml") and _os.path.isdir(f"{_checkout}/encodings"):
    __path__.append(_checkout)

TYPE_CHECKING = False  # typing, as most of the standard library, is loaded on first use: a command starts at once
if TYPE_CHECKING:
    from typing import Any as _Any

    from gapless._entries import *  # noqa: F403  # gapless.<system>, with the types of what it takes
    from gapless.challenges import challenge
    from gapless.checker import Report, check
    from gapless.errors import GaplessError, InputError, SolverError
    from gapless.ir.graph import Graph, Implementation, Op, Placement
    from gapless.ir.schedule import Schedule
    from gapless.ir.simulate import retime
    from gapless.model import Model
    from gapless.options import Progress, SolveOptions
    from gapless.recipe import solve
    from gapless.result import Result, load
    from gapless.solution import Solution, Status, StopReason
    from gapless.system import System, register

__version__ = "0.2.0"

_MODULE_OF = {
    "Report": "checker", "check": "checker",
    "InputError": "errors", "GaplessError": "errors", "SolverError": "errors",
    "Graph": "ir.graph", "Implementation": "ir.graph", "Op": "ir.graph", "Placement": "ir.graph",
    "Model": "model",
    "Progress": "options", "SolveOptions": "options",
    "Schedule": "ir.schedule",
    "retime": "ir.simulate",
    "Solution": "solution", "Status": "solution", "StopReason": "solution",
    "Result": "result", "load": "result",
    "solve": "recipe",
    "challenge": "challenges",
    "System": "system", "register": "system",
}  # fmt: skip

__all__ = [
    "GaplessError", "Graph", "Implementation", "InputError", "Model", "Op", "Placement", "Progress", "Report", "Result",
    "Schedule", "Solution", "SolveOptions", "SolverError", "Status", "StopReason", "System", "challenge", "check",
    "load", "register", "retime", "solve",
]  # fmt: skip


def __getattr__(name: str) -> "_Any":
    """Import a public name, or a system by its name, on first use: `import gapless` itself costs next to nothing."""
    from importlib import import_module

    if name in _MODULE_OF:
        value = getattr(import_module(f"gapless.{_MODULE_OF[name]}"), name)
    elif name.startswith("_") or name not in import_module("gapless.system").system_names():
        raise AttributeError(f"module 'gapless' has no attribute {name!r}")
    else:
        value = import_module("gapless.question.entry").entry(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from gapless.system import system_names

    return sorted({*globals(), *_MODULE_OF, *system_names()})
