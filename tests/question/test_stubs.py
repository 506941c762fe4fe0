"""What type checkers, editors and notebooks see of `gapless.<system>` is what its question says."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gapless
from gapless.question.fields import SOLVING
from gapless.question.stubs import stub_of
from gapless.system import find_system, system_names

STUB = Path(gapless.__file__).parent / "_entries.pyi"

USE = """
import gapless

gapless.taccl.solve("ring:4", size="1MB", time_limit=5)
gapless.taccl.solve("ring:4", size="1MB", sizes="2MB")  # no such argument
gapless.monet.solve("unet", batch=4, budget=[1])  # no such value
"""


def test_the_stub_is_what_the_questions_say() -> None:
    """Of the systems that it names: a new one goes without types until `python -m gapless.question.stubs` is run."""
    text = STUB.read_text(encoding="utf-8")
    named = [name for name in system_names() if f"class _{name.capitalize()}:" in text]
    assert named
    assert text == stub_of(named), "python -m gapless.question.stubs > gapless/_entries.pyi"


@pytest.mark.parametrize("name", ["taccl", "bagpipe"])
def test_a_signature_has_every_field_with_its_default(name: str) -> None:
    fields = find_system(name).fields
    entry = getattr(gapless, name)
    asked, solved = (inspect.signature(call).parameters for call in (entry.problem, entry.solve))
    assert list(asked) == [field.name for field in fields]
    assert list(solved) == [*asked, *(field.name for field in SOLVING), "on_progress"]
    assert all(asked[field.name].default == field.default for field in fields if not field.is_required)


@pytest.mark.thorough
def test_a_type_checker_finds_wrong_arguments(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(tmp_path / "use.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=STUB.parents[1], check=False)
    assert done.stdout.count("error:") == 2, done.stdout
    assert 'Unexpected keyword argument "sizes"' in done.stdout
