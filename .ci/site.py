"""What mkdocs runs while it builds the site: references are made from the parsers and the systems of this checkout."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_MAPPED = ("solvers", "encodings", "topologies", "profiles")


@cache
def _folder() -> Path:
    """A folder that goes when the build ends."""
    path = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def on_config(config: Any) -> Any:
    """Let docstrings be read from a copy in which the package is whole, as it is installed: links aren't followed."""
    copy = _folder() / "gapless"
    shutil.rmtree(copy, ignore_errors=True)
    left_out = shutil.ignore_patterns("__pycache__", *_MAPPED)
    shutil.copytree(_ROOT / "gapless", copy, ignore=left_out)
    for top in _MAPPED:
        shutil.copytree(_ROOT / top, copy / top, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / top / "__init__.py").touch()
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [str(_folder())]
    return config


on_config.mkdocs_priority = 100  # type: ignore[attr-defined]  # before mkdocstrings reads its paths


def _commands() -> str:
    from gapless.cli.commands import build_parser
    from gapless.cli.reference import commands_reference

    return commands_reference(build_parser())


def _systems() -> str:
    from gapless.cli.reference import systems_reference
    from gapless.system import find_system, system_names

    return systems_reference(map(find_system, system_names()))


_MARKS: dict[str, Callable[[], str]] = {"<!-- commands -->": _commands, "<!-- systems -->": _systems}


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Put a reference where a page has its mark."""
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    for mark, made in _MARKS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return markdown
