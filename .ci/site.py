"""What mkdocs runs while it builds the site: the first page begins with the README, references come from the parsers
and systems of this checkout, pages from the notebooks, and a report of each system by the commands of docs/reports.md.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
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


def _readme() -> str:
    """The README as a page of the site: its links lead from here, and to no file that the site doesn't hold."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"\[([^]]+)\]\([A-Z]+\.(?:md|cff)\)", r"`\1`", text)


_MARKS: dict[str, Callable[[], str]] = {
    "<!-- readme -->": _readme, "<!-- commands -->": _commands, "<!-- systems -->": _systems
}  # fmt: skip


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Put references where a page has their marks, and lead to the notebooks' pages instead of their files."""
    _make_importable()
    for mark, made in _MARKS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return markdown if page["page"].file.generated_by else markdown.replace(".ipynb)", ".md)")


def _make_importable() -> None:
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))


def on_files(files: Any, config: Any) -> Any:
    """Make a page of each notebook, with what it showed when it was last executed, and the reports."""
    from mkdocs.structure.files import File

    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        name = notebook.src_uri.removesuffix(".ipynb")
        text = _page_of(json.loads(Path(notebook.abs_src_path).read_text(encoding="utf-8")), Path(name).name)
        files.append(File.generated(config, f"{name}.md", content=text))
    for name, text in _reports().items():
        files.append(File.generated(config, f"reports/{name}.html", content=text))
    return files


@cache
def _reports() -> dict[str, str]:
    """The pages below reports/, by name: one of each plan that docs/reports.md makes, and one of all pictures.

    A plan whose block needs what isn't installed has a page that says so, and each with `GAPLESS_SITE_REPORTS=none`.
    """
    _make_importable()
    from gapless.cli.main import main

    pages, before = {}, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            text = (_ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
            commands = re.findall(r"^gapless (.*)$", text, re.MULTILINE)
            for words in map(shlex.split, [] if os.environ.get("GAPLESS_SITE_REPORTS") == "none" else commands):
                main([*words, "--quiet"])
            for name in re.findall(r"-o (\w+\.(?:json|npz))$", text, re.MULTILINE):
                if name != "trace.npz":
                    pages[Path(name).stem] = _report(name)
            pages["pictures"] = _sheet([*sorted(Path().glob("*.json")), Path("bagpipe.npz")])
        finally:
            os.chdir(before)
    return pages


def _report(plan: str) -> str:
    from gapless.cli.main import main

    if not Path(plan).exists():
        return f"<!DOCTYPE html><title>{plan}</title><p>Not made: this site was built without what it needs.\n"
    pictures = [] if find_spec("matplotlib") else ["--no-pictures"]
    main(["report", plan, "-o", "report.html", "--quiet", *pictures])
    return Path("report.html").read_text(encoding="utf-8")


def _sheet(plans: list[Path]) -> str:
    """Every kind of picture of every plan, on white and on dark paper."""
    from gapless.errors import InputError
    from gapless.plot.pictures import draw, kinds
    from gapless.plot.style import svg_text
    from gapless.result import read_saved

    drawn = []
    for path in filter(Path.exists, plans) if find_spec("matplotlib") else ():
        plan = read_saved(path)
        drawn.append(f"<h2>{path.stem}</h2>")
        for kind in kinds():
            try:
                drawn.append(svg_text(draw(plan, kind).figure, f"{path.stem}-{kind}"))
            except InputError:  # none of this plan
                continue
    style = "body{font:14px sans-serif;margin:0} section{padding:1rem} .dark{background:#16181b;color:#eee}"
    head = (
        f"<!DOCTYPE html><meta charset='utf-8'><title>Pictures</title><style>{style} svg{{max-width:48%;height:auto}}"
    )
    papers = [f"<section class='{paper}'>{''.join(drawn)}</section>" for paper in ("light", "dark")]
    return "\n".join([f"{head}</style>", *papers])


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
