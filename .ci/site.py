"""What mkdocs runs while it builds the site: the commands' reference is made from the parsers of this checkout, and
pages from the notebooks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Put the reference where a page has its mark, and lead to the notebooks' pages instead of their files."""
    if page["page"].file.generated_by is None:
        markdown = markdown.replace(".ipynb)", ".md)")
    if _MARK not in markdown:
        return markdown
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    from gapless.cli.commands import build_parser
    from gapless.cli.reference import commands_reference

    return markdown.replace(_MARK, commands_reference(build_parser()))


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
