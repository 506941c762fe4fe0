"""Extreme numbers in every numeric field of every system, from Python, files, a shell: taken, or refused in a line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import PUBLISHED
from small_plans import SYSTEMS, solve_command

import gapless
from gapless.cli.main import main
from gapless.errors import InputError
from gapless.question.fields import SOLVING, Field, Listed, Number, Scaled, Size, SizeOrShare, Whole
from gapless.sweeps import read_instances
from gapless.system import find_system

NUMBERS: tuple[Any, ...] = (
    1e30, 1e308, -1e308, 5e-324, -0.0, 0.5, math.nan, math.inf, -math.inf, 0, -1, 1, 2**15, 2**31 - 1, 2**31, 2**53,
    2**62, 2**63 - 1, 2**63, 2**64, 10**30, -(10**30), 10**400, np.int64(2**63 - 1), np.uint64(2**64 - 1),
    np.float64("nan"), np.float32(1e38), True, (1e30,), (10**400,),
)  # fmt: skip
TEXTS = (
    "1e30", "1e400", "1e-400", "-0", "-0.0", "nan", "inf", "0", "1000000000", "65536", str(2**31 - 1), str(2**63),
    "9" * 400, "9" * 5000, "1e30GB", "1e15B", "1e-30s", "1e300s", "1e308Gbps", "1e-300bps", "1e308x", "1e-300x",
    "1000x",
    "1e30,1e30", "1e999999999999", "1e-999999999999MB", "1", "4096", "8bps",
    "1000TB/s", "1e6s",
)  # fmt: skip
LITERALS = (
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "-0",
    "-0.0",
    "1e-400",
    "1e308",
    str(2**63),
    str(2**31 - 1),
    "9" * 400,
)
NUMERIC = (Number, Whole, Size, Scaled, SizeOrShare)


def is_numeric(field: Field) -> bool:
    return isinstance(field.kind.kind if isinstance(field.kind, Listed) else field.kind, NUMERIC)


FIELDS = [
    pytest.param(system, field, id=f"{system}-{field.name}")
    for system in SYSTEMS
    for field in (*find_system(system).fields, *SOLVING)
    if is_numeric(field)
]


@pytest.fixture
def question(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A system's small question, by field."""
    system = request.getfixturevalue("system")
    words = solve_command(system, tmp_path)[2:-2]
    names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
    found: dict[str, Any] = dict(zip(names, words[1::2], strict=True))
    found.pop("time_limit", None)
    return found


def refusal(call: Callable[[], object]) -> str:
    """What it is refused with, or nothing."""
    try:
        call()
    except InputError as error:
        return str(error)
    return ""


def test_every_published_system_has_a_question_here() -> None:
    assert set(SYSTEMS) >= set(PUBLISHED)


@pytest.mark.thorough(but=("size", "budget", "nodes", "chunks", "seed", "ranks"))
@pytest.mark.parametrize(("system", "field"), FIELDS)
def test_python_takes_an_extreme_number_or_refuses_it_in_one_line(
    system: str, field: Field, question: dict[str, Any]
) -> None:
    entry = getattr(gapless, system)
    for value in (*NUMBERS, *TEXTS):
        given = {**question, field.name: value}
        said = refusal(lambda: field.read(value) if field in SOLVING else entry.problem(**given))  # noqa: B023
        assert len(said.splitlines()) <= 1, value


@pytest.mark.thorough(but=("size", "budget", "nodes"))
@pytest.mark.parametrize(("system", "field"), FIELDS)
def test_a_sweep_file_with_an_extreme_number_is_taken_or_refused_in_one_line(
    system: str, field: Field, question: dict[str, Any], tmp_path: Path
) -> None:
    known = {each.name: each for each in find_system(system).fields}
    numbers = {name: json.loads(text) if known[name].is_numeric else text for name, text in question.items()}
    for literal in (*LITERALS, *(json.dumps(text) for text in TEXTS)):
        grid = json.dumps({"system": system, **numbers, field.name: "@"}).replace('"@"', literal)
        path = tmp_path / "sweep.json"
        path.write_text('{"format": "gapless.sweep", "version": 1, "grid": [' + grid + "]}")
        assert len(refusal(lambda: read_instances(path)).splitlines()) <= 1, literal  # noqa: B023


def taken(field: Field) -> list[str]:
    """The texts that the field itself takes."""
    return [text for text in TEXTS if not refusal(lambda: field.read(text))]  # noqa: B023


@pytest.mark.thorough
@pytest.mark.parametrize(("system", "field"), FIELDS)
def test_what_a_field_takes_is_solved_or_refused_in_one_line(
    system: str, field: Field, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*solve_command(system, tmp_path), "--quiet"]
    limit = [] if field.name == "time_limit" else ["--time-limit=1"]
    for text in taken(field):
        code = main([*command, f"{field.option}={text}", *limit])
        lines = capsys.readouterr().err.splitlines()
        most = {0: 0, 2: 1, 3: 2, 4: 2}[code]  # without a plan, a second line says what there would have to be
        assert len(lines) <= most, (text, code, lines)
        assert code != 2 or lines


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gapless.taccl.solve("ring:4", size=1e30), r"size: must be a whole number in 1\.\.10{15}, got 1e\+30"),
        (lambda: gapless.taccl.solve("ring:4", size="1e30"), "size: must be at least 1 byte and at most 1PB"),
        (lambda: gapless.taccl.solve("ring:4", size=1, gap=2), "gap: must be a number >= 0 and <= 1, got 2"),
        (lambda: gapless.taccl.solve("ring:4", size=1, threads=10**9), r"threads: must be a whole number in 0\.\.1024"),
        (lambda: gapless.taccl.problem("ndv2", nodes=10**6, size=1), "must have at most .* ranks"),
        (lambda: gapless.taccl.problem("ring:4", chunks=10**6, size=1), r"chunks: must be a whole number in 1\.\.4096"),
        (
            lambda: gapless.bagpipe.problem("criteo-like", trainers=50, batch_size=4),
            "trainers: must be at most the 4 examples of a batch, got 50",
        ),
        (
            lambda: gapless.bagpipe.problem("criteo-like", trainers=2**15 - 1, batch_size=2**20),
            "batch_size: times trainers must be at most 268,435,456, got .* take a smaller batch or fewer trainers",
        ),
    ],
)  # fmt: skip
def test_a_limit_is_named_with_rule_and_value(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_a_size_may_have_a_fraction() -> None:
    problem = gapless.monet.problem("vgg16", batch=4, budget="5.3GiB")
    assert problem.budget_bytes == 5690831667
    assert gapless.taccl.problem("ring:4", size="1.0005KB").size_bytes == 1000
