"""What mkdocs runs while it builds the site: references are made from the parsers and the systems of this checkout, and
pages from the notebooks.
"""

from __future__ import annotations

import atexit
import json
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
    from gapless.installation.reference import commands_reference

    return commands_reference(build_parser())


def _systems() -> str:
    from gapless.installation.reference import systems_reference
    from gapless.system import find_system, system_names

    return systems_reference(map(find_system, system_names()))


_MARKS: dict[str, Callable[[], str]] = {"<!-- commands -->": _commands, "<!-- systems -->": _systems}


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Put references where a page has their marks, and lead to the notebooks' pages instead of their files."""
    if page["page"].file.generated_by is None:
        markdown = markdown.replace(".ipynb)", ".md)")
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    for mark, made in _MARKS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return markdown


def on_files(files: Any, config: Any) -> Any:
    """Make a page of each notebook: its text, its code, and what it showed when it was last executed."""
    from mkdocs.structure.files import File

    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        name = notebook.src_uri.removesuffix(".ipynb")
        text = _page_of(json.loads(Path(notebook.abs_src_path).read_text(encoding="utf-8")), Path(name).name)
        files.append(File.generated(config, f"{name}.md", content=text))
    return files


def _page_of(notebook: dict[str, Any], name: str) -> str:
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell.get("outputs", ())]
    return "\n\n".join([*parts, f"*This page is a notebook: [{name}.ipynb]({name}.ipynb).*\n"])


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        source = f"data:image/png;base64,{data['image/png'].strip()}"
        return f'<p><img alt="what the code draws" src="{source}"></p>'
    if "text/html" in data:
        return "".join(data["text/html"])
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```text\n{text}\n```"
