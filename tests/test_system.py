"""Systems: found without a table of names, named by nobody else, and added by other packages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import gapless
from gapless.answering import asking
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.question import Asked, fields_of, said
from gapless.question.command_fields import PLAN, REPEATS
from gapless.question.fields import Choice
from gapless.system import Answer, Session, System, find_system, register, system_names

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = sorted(path.parent.name for path in (ROOT / "encodings").glob("*/system.py"))


def sources() -> Iterator[tuple[Path, str]]:
    """Every file that ships, and the system that it belongs to, empty where it is everybody's."""
    for top in ("gapless", "solvers", "encodings", "topologies", "profiles"):
        for path in sorted((ROOT / top).rglob("*")):
            parts = path.relative_to(ROOT).parts
            if path.suffix in (".py", ".json", ".bib", ".typed") and "__pycache__" not in parts:
                yield path, parts[1] if top == "encodings" else ""


COINED = {"bagpipe", "chai", "cupcake", "monet", "oktopk", "taccl"}
"""Names that mean nothing else. Of a word that the whole field uses, only what stands for the system counts."""


def name_of(system: str) -> str:
    if system in COINED:
        return rf"(?<![A-Za-z]){system}(?![A-Za-z])"
    return rf"(encodings|gapless)[./]{system}(?![-\w])"


def test_no_file_names_a_system_but_its_own() -> None:
    """Names of formats, such as TACCL-EF, and of what other people's files hold are no names of systems."""
    formats = r"taccl[-_ ]ef|taccl_ef"
    for path, own in sources():
        text = re.sub(formats, "", path.read_text(encoding="utf-8"), flags=re.IGNORECASE)
        for name in set(SHIPPED) - {own}:
            found = re.search(name_of(name), text, re.IGNORECASE if name in COINED else 0)
            assert found is None, f"{path.relative_to(ROOT)} names {name}: ...{text[found.start() - 40 : found.end()]}"


def test_every_folder_of_encodings_is_a_system() -> None:
    assert sorted(path.name for path in (ROOT / "encodings").iterdir() if (path / "__init__.py").is_file()) == SHIPPED
    assert set(SHIPPED) <= set(system_names())
    for name in SHIPPED:
        assert find_system(name).name == name
        assert repr(getattr(gapless, name)) == f"gapless.{name}"


def test_an_unknown_system_is_one_line_with_a_guess() -> None:
    with pytest.raises(InputError, match=r"system: must be one of .*, got 'tacl'; did you mean 'taccl'\?"):
        find_system("tacl")
    with pytest.raises(AttributeError, match="has no attribute 'tacl'"):
        _ = gapless.tacl


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.system._REGISTERED", {})
    system = System("sixth", "a test", Asked, lambda *_: None)
    register(system)
    assert find_system("sixth") is system
    for name in ("sixth", "taccl"):
        with pytest.raises(InputError, match=f"system: '{name}' is there already"):
            register(System(name, "", Asked, lambda *_: None))


PACKAGE = """
from dataclasses import dataclass

from gapless.question.fields import Whole
from gapless.question import Asked, asked
from gapless.system import System

@dataclass(frozen=True)
class Question(Asked):
    count: int = asked(Whole(1), "how many", 1)

SYSTEM = System("elsewhere", "from another package", Question, None)
"""


def test_another_package_adds_a_system_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(PACKAGE)
    folder = tmp_path / "other-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[gapless.systems]\nelsewhere = other:SYSTEM\n")
    code = "from gapless.cli.main import main; main(['list', 'systems']); main(['solve', 'elsewhere', '--help'])"
    path = f"{tmp_path}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path}, timeout=600
    )
    assert "elsewhere  from another package" in done.stdout
    assert "--count N" in done.stdout or "--count X" in done.stdout, done.stderr


@pytest.mark.parametrize("name", SHIPPED)
def test_fields_have_a_help_and_their_defaults_are_values_of_their_kind(name: str) -> None:
    for field in find_system(name).fields:
        assert field.help
        if field.default is not None:
            assert field.read(field.default) == field.default
        if isinstance(field.kind, Choice):
            assert field.default in field.kind.choices


@dataclass(frozen=True)
class Rerun(Asked):
    """A command's question, of fields that many commands have."""

    plan: str = said(PLAN)
    repeats: int = said(REPEATS)


def test_a_command_asks_a_question_of_shared_fields_with_what_was_typed() -> None:
    def answer(question: Rerun, session: Session) -> Answer:
        return Answer({"plan": question.plan, "repeats": question.repeats}, "")

    command, session = asking(Rerun, answer), Session(SolveOptions(), print)
    assert fields_of(Rerun) == (PLAN, REPEATS)
    assert command({"plan": "p.json", "repeats": "3"}, session).data == {"plan": "p.json", "repeats": 3}
    assert command({"plan": "p.json", "repeats": None}, session).data["repeats"] == REPEATS.default
    with pytest.raises(InputError, match=r"^plan: must be given: the plan$"):
        command({"plan": None}, session)
