"""Every parameter of every system at its least and at an extreme value: a plan, or one line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from compression_traces import small_trace

import gapless
from gapless import SolveOptions
from gapless.errors import InputError
from gapless.profiles.compression.trace import write_compression_trace
from gapless.question.parameters import parameters_of
from gapless.solution import Status
from gapless.system import find_system

QUESTIONS: dict[str, dict[str, Any]] = {
    "bagpipe": {"trace": "zipf", "trainers": 2, "batch_size": 32, "batches": 4, "lookahead": 2, "examples": 400,
                "table_rows": "50,40", "design": "lrpp-fine-grained"},
    "cache": {"profile": "synthetic:layers=2,heads=4,dimension=16", "cache": "0.3x"},
    "chai": {"profile": "synthetic:layers=3,heads=6", "kv_saving": 0.2},
    "cupcake": {"profile": "vgg16"},
    "monet": {"graph": "vgg16", "batch": 176, "budget": "0.8x"},
    "oktopk": {"indices": "clustered:elements=2000,steps=2", "ranks": 4},
    "pipeline": {"profile": "uniform:f=10,b=12,w=8", "ranks": 2, "micro_batches": 3, "hop": 2, "in_flight": 2},
    "sharding": {"instance": "drawn:nodes=8,choices=3"},
    "ranks": {"trace": "trace.npz", "data": "0.5x"},
    "taccl": {"topology": "ring:4", "size": "1kB"},
}  # fmt: skip
"""A small one of each system."""

QUICK = ("cache", "chai", "cupcake")
"""Of which every run looks at all fields."""

EXTREMES = (
    -1,
    0,
    1,
    2,
    10**6,
    0.0,
    1e-9,
    1.0,
    1e6,
    sys.float_info.max,
    (),
    (0,),
    (1,),
    (1e-9,),
    (1.0,),
    (10**9,),
    None,
)
"""Tried in turn; those that a class refuses, or that are of another type, are refused in one line."""


def fields_of(kind: type, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names of all numbers and tuples, tables included."""
    default = kind()
    for field in dataclasses.fields(kind):
        value = getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(type(value), (*before, field.name))
        else:
            yield (*before, field.name)


def cases() -> list[Any]:
    found = []
    for name in QUESTIONS:
        kind = find_system(name).parameters
        assert kind is not None
        marks = () if name in QUICK else (pytest.mark.thorough,)
        found += [pytest.param(name, path, id=".".join((name, *path)), marks=marks) for path in fields_of(kind())]
    return found


def nested(path: tuple[str, ...], value: object) -> dict[str, Any]:
    return {path[0]: nested(path[1:], value) if len(path) > 1 else value}


@pytest.mark.parametrize(("name", "path"), cases())
def test_a_parameter_at_its_ends_gives_a_plan_or_one_line(
    name: str, path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "ranks":
        write_compression_trace("trace.npz", small_trace())
    system = find_system(name)
    assert system.parameters is not None
    allowed = [system.parameters()()]
    for value in EXTREMES:
        with suppress(InputError):
            allowed.append(parameters_of(system.parameters(), nested(path, value)))
    problem = system.ask(QUESTIONS[name])
    for parameters in (allowed[min(1, len(allowed) - 1)], allowed[-1]):
        with suppress(InputError):
            result = gapless.solve(problem, SolveOptions(time_limit_s=0.3), parameters)
            assert result.valid or result.status is Status.NO_SOLUTION


def test_one_group_is_no_even_split() -> None:
    with pytest.raises(InputError, match="most_parts: must be >= 2, got 1"):
        gapless.cupcake.parameters({"most_parts": 1})
