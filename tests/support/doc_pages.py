"""Pages of the documentation: their blocks of code, which all run, and what they print.

Each `sh` and `python` block runs as it stands, page by page, in one folder, in order. A comment on the line before a
block says what else is done with it; readers of the site don't see it.

- `<!-- file: NAME -->` writes the block to a file that later commands read, `<!-- more: NAME -->` adds it to that file.
- `<!-- run with MODULE -->` runs it where that module is installed.
- `<!-- not run: REASON -->` leaves it out; the reasons are those of `NOT_RUN`.
- `<!-- output -->`: the page has printed these lines by now, in this order. Spaces count as one; `...` is any text.
  `<!-- output, numbers vary -->` is for what a time limit or a measurement decides: numbers and their units may differ.
  `<!-- output, once -->` was printed on the day that the page names, and isn't compared.
- `<!-- picture -->` is drawn in letters.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from gapless.cli.main import main
from gapless.installation.doctor import declared_extras, extras_for
from gapless.system import _elsewhere

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]

NOT_RUN = {
    "needs another machine": "a cluster, a GPU, root, a runtime of others",
    "needs your own file": "one that gapless doesn't ship and the page can't show",
    "takes minutes": "of processor time, more than two",
    "sets up a checkout": "environments, servers, the tests themselves",
}
"""Why a block isn't run: the only reasons."""

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NUMBER = re.compile(r"[-+]?\b\d[\d.,]*(?:e[-+]?\d+)?(?: ?(?:[num]?s|[kKMGT]?i?B|[kMG]b/s|%)(?!\w))?")
_PROCESS_S = 300


@dataclass(frozen=True)
class Block:
    """A block of code; `mark` is what the comment before it says, empty without one."""

    mark: str
    language: str
    text: str

    @property
    def is_run(self) -> bool:
        """Whether the page's test runs it, where its module is installed."""
        return self.language in ("sh", "python") and self.mark.split(":")[0] not in ("file", "more", "not run")


def blocks(text: str) -> list[Block]:
    """All blocks of a page."""
    return [Block(*(part or "" for part in found.group("mark", "language", "text"))) for found in _BLOCK.finditer(text)]


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block in words, without comments; a backslash continues a line, and `&&` stands between two."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word != "&&":
                words.append(word)
            elif words:
                yield words
                words = []


def pages() -> list[Path]:
    """README.md and every page below docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run_page(text: str, folder: Path) -> int:
    """Do all blocks of a page in `folder`, the current one; returns the number of blocks that ran.

    Raises `AssertionError` where a command fails or the page shows lines that weren't printed; skips the test where an
    extra isn't installed.
    """
    module = types.ModuleType("page")
    sys.modules["page"] = module  # dataclasses look their module up
    printed = io.StringIO()
    count = 0
    for block in blocks(text):
        kind, _, name = block.mark.partition(": ")
        if kind in ("file", "more"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("w" if kind == "file" else "a", encoding="utf-8") as file:
                file.write(block.text if kind == "file" else f"\n\n{block.text}")
        elif kind in ("output", "output, numbers vary"):
            missing = missing_line(block, printed.getvalue())
            assert missing is None, f"the page's commands don't print {missing!r}, but:\n{printed.getvalue()}"
        elif block.is_run:
            if kind.startswith("run with ") and find_spec(kind.split()[-1]) is None:
                pytest.skip(f"{kind.split()[-1]} is not installed")
            count += 1
            with redirect_stdout(printed), redirect_stderr(printed):
                if block.language == "python":
                    _run_python(block, module)
                else:
                    run_commands(block)
    return count


def missing_line(block: Block, printed: str) -> str | None:
    """The first line of an output block that `printed` doesn't have after those before it; None where all are there."""

    def plain(line: str) -> str:
        return " ".join((_NUMBER.sub("#", line) if "numbers vary" in block.mark else line).split())

    lines = iter([plain(line) for line in printed.splitlines()])
    for line in filter(None, map(plain, block.text.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        if not any(pattern.fullmatch(found) for found in lines):
            return line
    return None


def _run_python(block: Block, module: types.ModuleType) -> None:
    try:
        exec(compile(block.text, "page", "exec", dont_inherit=True), module.__dict__)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("torch", "transformers", "faiss", "matplotlib", "jsonschema"):
            raise
        pytest.skip(str(error))


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
    """Run each command: `gapless` in this process, what `torchrun` starts in others.

    What `pip` installs is here already, or the command that needs it is left out: pictures, or the rest of the page. A
    page's own package is made known as installing it would.
    """
    for words in commands(block):
        if words[:2] == ["pip", "install"]:
            if words[2:] == ["."] and Path("pyproject.toml").exists():
                install(Path.cwd())
        elif words[0] == "torchrun":
            _run_processes(words)
        else:
            assert words[0] == "gapless", f"only gapless, pip and torchrun are run, got {words[0]}"
            if _is_complete(words[1:]):
                code = main(words[1:])
                assert code == 0, f"{shlex.join(words)} ended with exit code {code}"


def _is_complete(words: list[str]) -> bool:
    """Whether a command's extras are here; skips the test where one is missing that later commands need, too."""
    complete = {extra.name: extra.is_complete for extra in declared_extras()}
    missing = [name for name in extras_for(words) if not complete[name]]
    if set(missing) - {"plot"}:
        pytest.skip(f"gapless {shlex.join(words)}: extra {missing[0]} is not installed")
    return not missing


def _run_processes(words: list[str]) -> None:
    if find_spec("torch") is None:
        pytest.skip("torchrun: PyTorch is not installed")
    found = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words[1:]],
        capture_output=True,
        text=True,
        timeout=_PROCESS_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    print(found.stdout)
    assert found.returncode == 0, f"{shlex.join(words)} ended with exit code {found.returncode}: {found.stderr[-2000:]}"
