"""What mkdocs runs while it builds the site: the commands' reference is made from the parsers of this checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Put the reference where a page has its mark."""
    if _MARK not in markdown:
        return markdown
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    from gapless.cli.commands import build_parser
    from gapless.cli.reference import commands_reference

    return markdown.replace(_MARK, commands_reference(build_parser()))
