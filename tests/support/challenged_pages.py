"""The plans that pages of the documentation write, to be challenged: their claims must stand."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from doc_pages import ROOT, run_page
from questions import content

from gapless.challenges import ChallengeReport, challenge
from gapless.errors import InputError
from gapless.result import read_saved

__all__ = ["PAGES", "WORK", "challenged", "plans_of", "written_plans"]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
"""Whose plans are challenged."""
WORK = 20
"""Of each challenge: a few seconds of processor time."""
_NOT_COMPARED = re.compile(r"<!-- output[^>]*-->")
"""What a page prints is another test's."""


def plans_of(page: Path, folder: Path) -> list[Path]:
    """Run a page in a folder, and name the plans that it has left there, each once, in order of their names."""
    with _in_folder(folder):
        run_page(_NOT_COMPARED.sub("<!-- output, once -->", page.read_text(encoding="utf-8")), folder)
    found = {str(content(path)): path for path in reversed(list(written_plans(folder)))}
    return list(found.values())[::-1]


def written_plans(folder: Path) -> Iterator[Path]:
    """The plan files in a folder; the others of their kind are something else."""
    for path in sorted([*folder.rglob("*.json"), *folder.rglob("*.npz")]):
        try:
            read_saved(path)
        except (InputError, ValueError):
            continue
        yield path


def challenged(path: Path, work: int = WORK) -> ChallengeReport:
    """What becomes of a plan, whose question is asked in its own folder."""
    with _in_folder(path.parent):
        return challenge(path.name, work=work)


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    known, before = list(sys.path), Path.cwd()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = known
