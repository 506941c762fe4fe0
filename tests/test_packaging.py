"""What ships is what is there: the build mapping, and the ways to import a checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("gapless", "solvers", "encodings", "topologies", "profiles")
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def folders(pattern: str) -> set[Path]:
    return {
        path.parent.relative_to(ROOT)
        for top in MAPPED
        for path in (ROOT / top).rglob(pattern)
        if "__pycache__" not in path.parts
    }


def package_of(folder: Path) -> str:
    return ".".join(folder.parts if folder.parts[0] == "gapless" else ("gapless", *folder.parts))


def test_every_folder_with_code_is_listed() -> None:
    for folder in folders("*.py"):
        assert package_of(folder) in SETTINGS["packages"], f"{folder} is not in [tool.setuptools] packages"


def test_the_four_folders_are_mapped_below_the_package() -> None:
    """What lies below them follows: a new system is one line, in `packages`."""
    mapped = {f"gapless.{folder}": folder for folder in MAPPED[1:]}
    assert SETTINGS["package-dir"] == {"gapless": "gapless", **mapped}


def test_every_data_file_ships() -> None:
    for top in MAPPED:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts:
                patterns = SETTINGS["package-data"].get(package_of(path.parent.relative_to(ROOT)), [])
                assert any(path.match(pattern) for pattern in patterns), f"{path} is not in package-data"


def test_folders_that_share_a_name_with_others_have_no_init_file() -> None:
    for top in MAPPED[1:]:
        assert not (ROOT / top / "__init__.py").exists()


def test_data_files_are_found_through_the_package() -> None:
    assert (files("gapless.topologies") / "ndv2.json").is_file()
    assert (files("gapless.profiles.traces") / "criteo_kaggle.json").is_file()
    assert (files("gapless.encodings.taccl.sketch.shipped") / "ndv2-sk-1.json").is_file()


def run_python(code: str, path: str, folder: Path = ROOT) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env={"PYTHONPATH": path}
    ).stdout


def test_checkout_works_by_pythonpath_alone() -> None:
    code = "import encodings.utf_8, gapless.encodings.taccl as t; print(t.sketch_names())"
    assert "ndv2-sk-1" in run_python(code, ".")


def test_links_lead_from_the_package_to_the_folders_beside_it() -> None:
    """Type checkers and editors follow them; where a checkout has none (a zip, Windows), Python does without."""
    for top in MAPPED[1:]:
        link = ROOT / "gapless" / top
        if link.is_symlink():
            assert link.resolve() == ROOT / top


@pytest.mark.parametrize("leaves", ["nothing", "texts"])
def test_checkout_works_without_its_links(tmp_path: Path, leaves: str) -> None:
    """A zip may leave a text in the place of each link: where it leads."""

    def links(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(folder) / name).is_symlink() or name == "__pycache__"]

    for top in MAPPED:
        shutil.copytree(ROOT / top, tmp_path / top, symlinks=True, ignore=links)
        if leaves == "texts" and top != "gapless":
            (tmp_path / "gapless" / top).write_text(f"../{top}")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    code = "import gapless.encodings.taccl as t; print(t.__file__, t.sketch_names())"
    printed = run_python(code, str(tmp_path), tmp_path)
    assert str(tmp_path / "encodings") in printed
    assert "ndv2-sk-1" in printed
