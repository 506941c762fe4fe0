"""Parameters: plain values with a sentence each, from Python and from TOML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.cli.main import main
from gapless.errors import InputError
from gapless.question.parameters import check_least, parameter_rows, parameters_of
from gapless.system import find_system, system_names


@dataclass(frozen=True)
class Inner:
    """A table."""

    share: float = 0.5
    """How much of it."""
    names: tuple[str, ...] = ("a",)
    """Which ones."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InputError(f"share must be in 0..1, got {self.share}")


@dataclass(frozen=True)
class Outer:
    """All of it."""

    tries: int = 3
    """How often."""
    most: int | None = None
    """At most; None for no limit."""
    inner: Inner = field(default_factory=Inner)
    """The table."""


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text('tries = 5\n[inner]\nshare = 1\nnames = ["b", "c"]\n')
    assert parameters_of(Outer, str(path)) == Outer(5, None, Inner(1.0, ("b", "c")))
    assert parameters_of(Outer, path) == parameters_of(Outer, {"tries": 5, "inner": {"share": 1, "names": ["b", "c"]}})
    assert parameters_of(Outer, None) == Outer()
    assert parameters_of(Outer, Outer(7)) == Outer(7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trys": 1}, "parameters: 'trys' is no parameter; did you mean 'tries'"),
        ({"tries": "many"}, "parameters: tries: must be a whole number, got 'many'"),
        ({"tries": True}, "parameters: tries: must be a whole number, got True"),
        ({"most": 1.5}, "parameters: most: must be a whole number, got 1.5"),
        ({"inner": 3}, "parameters: inner: must be a table, got 3"),
        ({"inner": {"share": 2}}, r"parameters: inner: share must be in 0\.\.1, got 2.0"),
        ({"inner": {"names": "b"}}, "parameters: inner: names: must be a list, got 'b'"),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parameters_of(Outer, values)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("tries = ")
    with pytest.raises(InputError, match=r"broken\.toml: not TOML"):
        parameters_of(Outer, tmp_path / "broken.toml")
    with pytest.raises(InputError, match="cannot read"):
        parameters_of(Outer, tmp_path / "none.toml")


def test_rows_have_names_defaults_and_sentences() -> None:
    assert parameter_rows(Outer)[0] == {"name": "tries", "default": "3", "what": "How often."}
    assert [row["name"] for row in parameter_rows(Outer)] == ["tries", "most", "inner.share", "inner.names"]


@pytest.mark.parametrize("name", [name for name in system_names() if find_system(name).parameters is not None])
def test_every_parameter_of_a_system_has_a_sentence(name: str) -> None:
    kind = find_system(name).parameters
    assert kind is not None
    for row in parameter_rows(kind()):
        assert row["what"].endswith("."), row
        assert row["what"][0].isupper(), row
        assert row["default"], row


def test_parameters_reach_the_search() -> None:
    """With few sends for a number of chunks to be tried, there is one chunk."""
    asked = {"topology": "ring:4", "size": "1MB", "gap": 0.01, "threads": 1, "method": "greedy"}
    chunks = [
        gapless.taccl.solve(**asked, parameters=parameters).problem.description["chunks_per_rank"]
        for parameters in ({}, {"chunking": {"most_sends": 4 * 4}})
    ]
    assert chunks[0] > chunks[1] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["taccl", "--topology", "ring:3", "--sizes", "1KB", "--parts", "1", "--instances", "1"],
        ["monet", "--graph", "vgg16", "--batch", "1", "--budgets", "1KB"],
    ],
)
def test_parameters_reach_the_sweeps(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tuned.toml").write_text("nonsense = 1\n")
    asked = ["sweep", *words, "--parameters", str(tmp_path / "tuned.toml"), "-o", str(tmp_path / "out"), "--quiet"]
    assert main(asked) == 2
    assert "'nonsense' is no parameter" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@dataclass(frozen=True)
class Counted:
    """Whole numbers, one and several, beside what isn't counted."""

    tries: int = 3
    sizes: tuple[int, ...] = (4, 2)
    most: int | None = None
    share: float = 0.5


@pytest.mark.parametrize(
    ("counted", "least", "said"),
    [
        (Counted(tries=0), {}, "tries: must be >= 1, got 0"),
        (Counted(sizes=(4, 0, 3)), {}, "sizes: must be >= 1, got 0"),
        (Counted(most=-1), {}, "most: must be >= 1, got -1"),
        (Counted(tries=2), {"tries": 3}, "tries: must be >= 3, got 2"),
    ],
)
def test_whole_numbers_have_a_least(counted: Counted, least: dict[str, int], said: str) -> None:
    check_least(Counted(), **least)
    with pytest.raises(InputError, match=f"^{said}$"):
        check_least(counted, **least)
