"""A new system of this repository is a folder and a line of pyproject.toml: the one of docs/extending.md, in a copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
LINE = '  "gapless.encodings.spreading",\n'
QUICK = (
    *("tests/test_imports.py", "tests/test_lazy.py", "tests/test_packaging.py", "tests/test_system.py"),
    *("tests/docs/test_notebooks.py", "tests/docs/test_pages.py", "tests/docs/test_reference.py"),
    *("tests/question/test_fields.py", "tests/question/test_parameters.py", "tests/question/test_stubs.py"),
    *("tests/sweeps/test_instances.py", "tests/test_extremes.py"),
)
"""Files of tests that look at each system, or at each folder."""
LEFT_OUT = "without_its_links or site_builds or notebook_says or extreme_number or block_runs or reach"
"""Of these, what takes long and looks at neither."""
SLOW = (
    *("tests/cli/test_cli.py", "tests/cli/test_help_examples.py", "tests/cli/test_without_extras.py"),
    *("tests/docs/test_architecture.py", "tests/docs/test_evidence_census.py", "tests/docs/test_words.py"),
    *("tests/installation", "tests/schemas", "tests/test_drawn_questions.py", "tests/test_wrong_types.py"),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's files, and the folder and the line of the new system."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no checkout of git: which files are the repository's is not known")
    folder = tmp_path_factory.mktemp("copy")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.rstrip("\0").split("\0"):
        source, target = ROOT / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)
    for block in blocks(PAGE):
        kind, _, name = block.mark.partition(": ")
        if kind in ("file", "more") and name.endswith(".py"):
            path = folder / "encodings" / name
            path.parent.mkdir(exist_ok=True)
            text = re.sub(r"^from spreading\b", "from gapless.encodings.spreading", block.text, flags=re.MULTILINE)
            path.write_text(
                text if kind == "file" else f"{path.read_text(encoding='utf-8')}\n\n{text}", encoding="utf-8"
            )
    project = folder / "pyproject.toml"
    before, listed, after = project.read_text(encoding="utf-8").partition("packages = [\n")
    project.write_text(before + listed + LINE + after, encoding="utf-8")
    return folder


def run(folder: Path, *words: str) -> str:
    """What `python -m ...` prints in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_the_page_names_the_line() -> None:
    assert LINE in PAGE


def test_the_commands_of_the_page_know_it(copy: Path) -> None:
    assert "spreading  spread independent shards over workers" in run(copy, "gapless", "list", "systems")
    solve = next(line for line in PAGE.splitlines() if line.startswith("gapless solve spreading"))
    assert re.search(r"^makespan +6 s$", run(copy, *solve.split()), re.MULTILINE)
    assert "5 events: valid" in run(copy, "gapless", "check", "plan.json")
    (copy / "plan.json").unlink()


def test_the_style_is_that_of_the_repository(copy: Path) -> None:
    pytest.importorskip("ruff")
    run(copy, "ruff", "check", "--fix", "encodings/spreading")  # the order of imports is another one here
    run(copy, "ruff", "format", "--check", "encodings/spreading")


def test_what_looks_at_each_system_and_each_folder_passes(copy: Path) -> None:
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", *QUICK, "-k", f"not ({LEFT_OUT})")


@pytest.mark.thorough
def test_what_takes_long_passes_too(copy: Path) -> None:
    left_out = f"{LEFT_OUT} or code_uses"
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", *SLOW, "-k", f"not ({left_out})")
    work = ("tests/challenges/test_challenge.py", "--thorough", "-k", "work_bounds")
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", *work)
