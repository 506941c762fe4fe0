"""What type checkers and editors see of `gapless.<system>`, written from the systems' questions.

`python -m gapless.question.stubs > gapless/_entries.pyi` writes the stub anew; a test holds it against the questions.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator

from gapless.question import Asked, fields_of
from gapless.question.fields import SOLVING, Field, Number, Whole
from gapless.system import System, find_system, system_names

__all__ = ["signature_of", "stub_of"]

_HEAD = """\
# The systems' entries, as type checkers see them: made by `python -m gapless.question.stubs` from their questions.

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
"""
_IMPORTS = (
    "from gapless.options import Progress", "from gapless.question.fields import Share",
    "from gapless.result import Result", "from gapless.system import System",
)  # fmt: skip


def signature_of(question: type[Asked], solves: bool) -> inspect.Signature:
    """What `problem` takes, or `solve`: the fields of the question, and those of solving."""
    parameters = [_parameter(question, field) for field in fields_of(question)]
    solving = [_keyword(field.name, _solving_type(field), field.default) for field in SOLVING]
    progress = _keyword("on_progress", "Callable[[Progress], None] | None", None)
    return inspect.Signature([*parameters, *((*solving, progress) if solves else ())])


def _parameter(question: type[Asked], field: Field) -> inspect.Parameter:
    """A field as a parameter; a text may stand for whatever it holds, and only what stands first goes by place."""
    annotation = next(_annotations(kind)[field.name] for kind in question.__mro__ if field.name in _annotations(kind))
    types = annotation.split(" | ")
    if "str" not in types and annotation != "bool":
        types.insert(len(types) - (types[-1] == "None"), "str")
    said = " | ".join(types)
    default = inspect.Parameter.empty if field.is_required else field.default
    if field.name == fields_of(question)[0].name:
        return inspect.Parameter(field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=said)
    return _keyword(field.name, said, default)


def _annotations(kind: type) -> dict[str, str]:
    return {name: str(annotation) for name, annotation in inspect.get_annotations(kind).items()}


def _keyword(name: str, annotation: str, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _solving_type(field: Field) -> str:
    numeric = {Number: "float | str | None", Whole: "int | str"}
    return numeric.get(
        type(field.kind), "Mapping[str, object] | str | None" if field.name == "parameters" else "str | None"
    )


def stub_of(names: Iterable[str]) -> str:
    """The stub of these systems' entries."""
    systems = [find_system(name) for name in names]
    entries = "\n\n".join("\n".join(_entry(system)) for system in systems)
    found = {line for system in systems for line in _imports(system.question)}
    used = {line for line in found if _words(line.partition(" import ")[2]) & _words(entries)}
    imports = sorted({*_IMPORTS, *used})
    listed = ", ".join(f'"{system.name}"' for system in systems)
    return "\n".join([_HEAD, *imports, "", f"__all__ = [{listed}]", "", entries, ""])


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _imports(question: type[Asked]) -> Iterator[str]:
    """What the modules of a question, and of those that it is made of, import for their annotations alone."""
    for kind in question.__mro__:
        if kind in (Asked, object):
            continue
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[kind.__module__]))):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                lines = (ast.unparse(line) for line in node.body)
                yield from (line for line in lines if line.startswith("from gapless."))


def _entry(system: System) -> Iterator[str]:
    yield f"class _{system.name.capitalize()}:"
    yield "    system: System"
    for name, solves, returns in (("problem", False, "Any"), ("solve", True, "Result")):
        first, *others = signature_of(system.question, solves).parameters.values()
        yield f"    def {name}("
        yield from (f"        {word}," for word in ("self", _word(first), "*", *map(_word, others)))
        yield f"    ) -> {returns}: ..."
    yield "    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ..."
    yield ""
    yield f"{system.name}: _{system.name.capitalize()}"


def _written(default: object) -> str:
    """A default as our style has it."""
    if isinstance(default, tuple):
        return f"({', '.join(map(_written, default))}{',' if len(default) == 1 else ''})"
    return json.dumps(default) if isinstance(default, str) else repr(default)


def _word(parameter: inspect.Parameter) -> str:
    default = _written(parameter.default)
    said = "" if parameter.default is parameter.empty else f" = {default}"
    return f"{parameter.name}: {parameter.annotation}{said}"


if __name__ == "__main__":
    sys.stdout.write(stub_of(system_names()))
