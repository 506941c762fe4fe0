"""Pages of the documentation: their blocks of code, and what is run of them.

A comment on the line before a block says what a test does with it: `<!-- run -->` runs each command of an `sh` block,
or the whole of a `python` block, `<!-- run with MODULE -->` where that module is installed; `<!-- file: NAME -->`
writes the block to a file that later commands read, and `<!-- more: NAME -->` adds it to that file.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gapless.cli.main import main
from gapless.system import _elsewhere

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A block of code; `mark` is what the comment before it says, empty without one."""

    mark: str
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """All blocks of a page."""
    return [Block(*(part or "" for part in found.group("mark", "language", "text"))) for found in _BLOCK.finditer(text)]


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block in words, without comments; a backslash at the end of a line continues it."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def pages() -> list[Path]:
    """README.md and every page below docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run_page(text: str, folder: Path) -> int:
    """Do in `folder`, the current one, what the marks of a page ask for; returns the number of blocks that ran."""
    module = types.ModuleType("page")
    sys.modules["page"] = module  # dataclasses look their module up
    count = 0
    for block in blocks(text):
        if block.mark.startswith("file: "):
            (folder / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        elif block.mark.startswith("more: "):
            with (folder / block.mark.removeprefix("more: ")).open("a", encoding="utf-8") as file:
                file.write(f"\n\n{block.text}")
        elif block.mark == "run" or (block.mark.startswith("run with ") and find_spec(block.mark.split()[-1])):
            count += 1
            if block.language == "python":
                exec(compile(block.text, "page", "exec", dont_inherit=True), module.__dict__)
            else:
                run_commands(block)
    return count


def install(folder: Path) -> None:
    """What `pip install .` does for a package in a folder, as far as gapless sees it: its name and its entry points."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(head, encoding="utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    _elsewhere.cache_clear()


def run_commands(block: Block) -> None:
    """Run each `gapless` command; `plot`, and a `report` with pictures, only where matplotlib is installed.

    What `pip` installs is here already, or left out as matplotlib is; a page's own package is made known as installing
    it would.
    """
    for words in commands(block):
        if words == ["pip", "install", "."] and Path("pyproject.toml").exists():
            install(Path.cwd())
        if words[0] == "pip":
            continue
        assert words[0] == "gapless", f"only gapless is run, got {words[0]}"
        draws = words[1] == "plot" or (words[1] == "report" and "--no-pictures" not in words)
        if draws and find_spec("matplotlib") is None:
            continue
        code = main(words[1:])
        assert code == 0, f"{shlex.join(words)} ended with exit code {code}"
