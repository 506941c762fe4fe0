"""The wheel and the source distribution, as `python -m build` makes them: what they hold, and that they work alone."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from doc_pages import blocks, commands

import gapless

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("solvers", "encodings", "topologies", "profiles")
MOST_BYTES = 4 * 2**20
"""More than a wheel of code, tables and small profiles has."""

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class Built:
    """Both distributions, and what git tracks, links left out: they would hold files twice."""

    wheel: Path
    source: Path
    tracked: frozenset[str]


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """What a command prints; with `path`, Python looks there first."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    ended = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, f"{shlex.join(map(str, command))}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def isolation() -> list[str]:
    """What spares builds a download: an environment of their own isn't needed where setuptools is new enough."""
    is_there = find_spec("setuptools") is not None and int(version("setuptools").partition(".")[0]) >= 77
    return ["--no-isolation"] if is_there else []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Made from what git tracks, the wheel from the source distribution."""
    if find_spec("build") is None or not (ROOT / ".git").exists():
        pytest.skip("needs build (extra test) and a git repository")
    folder = tmp_path_factory.mktemp("built")
    listed = run("git", "ls-files", "-z", cwd=ROOT)
    names = {name for name in listed.split("\0") if (ROOT / name).is_file() and not (ROOT / name).is_symlink()}
    for name in names:
        (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "copy" / name)
    run(sys.executable, "-m", "build", *isolation(), "--outdir", folder, folder / "copy", cwd=folder)
    return Built(next(folder.glob("*.whl")), next(folder.glob("*.tar.gz")), frozenset(names))


def installed(folder: Path, what: Path) -> Path:
    """Where pip has put a distribution, or a folder of sources, by itself: libraries are those of this environment."""
    alone = ["--no-build-isolation"] if isolation() else []
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    run(sys.executable, "-m", "pip", "install", *quiet, *alone, "--target", folder / "site", what, cwd=folder)
    return folder / "site"


@pytest.mark.extra("release")
def test_twine_finds_nothing_wrong(built: Built) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", built.wheel, built.source, cwd=ROOT)


def test_metadata_say_what_is_true(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        about = f"gapless-{gapless.__version__}.dist-info"
        head, _, readme = archive.read(f"{about}/METADATA").decode().partition("\n\n")
        assert archive.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    fields = head.splitlines()
    assert f"Version: {gapless.__version__}" in fields
    assert "License-Expression: MIT" in fields
    assert "Description-Content-Type: text/markdown" in fields
    assert readme.strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    oldest = int(re.findall(r"Requires-Python: >=3\.(\d+)", head)[0])
    named = [int(minor) for minor in re.findall(r"Python :: 3\.(\d+)$", head, re.MULTILINE)]
    assert named == list(range(oldest, max(named) + 1))
    assert f"versions=({' '.join(f'3.{minor}' for minor in named)})" in (ROOT / ".ci" / "interpreters").read_text()


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    shipped = {
        name if name.startswith("gapless/") else f"gapless/{name}"
        for name in built.tracked
        if name.startswith(("gapless/", *(f"{top}/" for top in MAPPED)))
    }
    with zipfile.ZipFile(built.wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == shipped
    assert built.wheel.stat().st_size < MOST_BYTES


def test_the_source_distribution_holds_what_the_repository_does(built: Built) -> None:
    with tarfile.open(built.source) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in held - built.tracked if "egg-info/" not in name} == {"PKG-INFO", "setup.cfg"}
    assert built.tracked <= held


def test_readme_s_first_lines_work_from_the_wheel(built: Built, tmp_path: Path) -> None:
    """All commands above the first block of Python, and that."""
    site = installed(tmp_path, built.wheel)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    above = [block for block in blocks(readme[: readme.index("```python")]) if block.language == "sh"]
    python = next(block.text for block in blocks(readme) if block.language == "python")
    lines = [words[words.index("gapless") + 1 :] for block in above for words in commands(block) if "gapless" in words]
    assert len(lines) > 5
    for words in lines:
        if words[0] not in ("plot", "report") or find_spec("matplotlib") is not None:
            run(sys.executable, site / "bin" / "gapless", *words, cwd=tmp_path, path=site)
    assert str(site) in run(sys.executable, "-c", f"{python}\nprint(gapless.__file__)", cwd=tmp_path, path=site)
    assert (tmp_path / "plan.json").is_file()


def test_the_source_distribution_installs_and_passes_tests(built: Built, tmp_path: Path) -> None:
    """Without git, and without the links that a checkout has."""
    with tarfile.open(built.source) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    sources = next(tmp_path.glob("gapless-*"))
    site = installed(tmp_path, sources)
    code = "import gapless, gapless.encodings; print(gapless.__version__, gapless.__path__)"
    assert (
        run(sys.executable, "-c", code, cwd=tmp_path, path=site)
        == f"{gapless.__version__} [{str(site / 'gapless')!r}]\n"
    )
    smoke = (
        "test_packaging.py",
        "test_version.py",
        "test_schedule.py",
        "checker/test_rules.py",
        "docs/test_reference.py",
    )
    files = [sources / "tests" / name for name in smoke]
    run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files, cwd=sources, path=sources)
