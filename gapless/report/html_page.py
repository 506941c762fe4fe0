"""One HTML page with everything in it: no address that a browser would fetch, and no script but the one that its policy
names by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from gapless.io.atomic import write_text

__all__ = ["Page", "Picture", "Table", "page_text", "table_html", "write_page"]

_STYLE = """\
:root { color-scheme: light dark; --ink: #1a1a1a; --pale-ink: #666; --paper: #fff; --line: #ccc; --box: #f4f4f4;
  --good: #eaf3f9; --bad: #fbeee5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --pale-ink: #a0a0a0; --paper: #16181b; --line: #444; --box: #24272b;
    --good: #12293a; --bad: #3a2213; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 68rem;
  margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0 0 .8rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
table { border-collapse: collapse; }
th { text-align: left; font-weight: 600; vertical-align: top; padding: .15rem 1.5rem .15rem 0; white-space: nowrap; }
td { padding: .15rem 0; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: .4rem 2.5rem; margin: 0 0 .8rem; }
.facts dt { color: var(--pale-ink); font-size: .9rem; }
.facts dd { margin: 0; font-size: 1.25rem; overflow-wrap: anywhere; }
.verdict { padding: .7rem 1rem; border-left: .4rem solid; font-size: 1.1rem; }
.good { border-color: #0072B2; background: var(--good); }
.bad { border-color: #D55E00; background: var(--bad); }
pre { background: var(--box); padding: .7rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1rem 0 1.6rem; }
figure svg { max-width: 100%; height: auto; background: #fff; }
figcaption, .hint { color: var(--pale-ink); font-size: .9rem; }
footer { margin-top: 2.5rem; color: var(--pale-ink); font-size: .9rem; }
.explorer { position: relative; }
.explorer .tools, .explorer .legend { display: flex; flex-wrap: wrap; gap: .4rem .9rem; align-items: center;
  margin: .4rem 0; }
.explorer .legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
.explorer .rows { overflow-y: auto; border: 1px solid var(--line); }
.explorer canvas { position: sticky; top: 0; display: block; width: 100%; cursor: crosshair; }
.explorer .tip { position: absolute; z-index: 1; max-width: 300px; padding: .4rem .6rem; white-space: pre-line;
  background: var(--paper); border: 1px solid var(--line); font-size: .85rem; pointer-events: none; }
.explorer .tip[hidden] { display: none; }
.explorer .about { margin: .5rem 0; min-height: 1.5em; overflow-wrap: anywhere; }
@media (max-width: 40rem) { th { white-space: normal; padding-right: .8rem; } }
"""


@dataclass(frozen=True)
class Table:
    """A heading, and rows of a name and a value in words."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Picture:
    """An `<svg>` element as text, and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Page:
    """The content of the page, all in words: the time line and the pictures stand before the tables.

    `messages`: what is wrong, a line each. `command`: empty where it is not known. `explorer`: a part in HTML that
    stands before the pictures, and `script`, the only one that the page runs. `facts`: names and values in words with
    which the page opens below its title, before the verdict.
    """

    title: str
    verdict: str
    is_good: bool
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    messages: Sequence[str] = ()
    command: str = ""
    footer: str = ""
    explorer: str = ""
    script: str = ""
    facts: Sequence[tuple[str, str]] = ()


def write_page(path: str | Path, page: Page) -> None:
    """Write a page, whole or not at all."""
    write_text(path, page_text(page))


def page_text(page: Page) -> str:
    """The page as HTML 5; equal pages give equal text."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(page.script)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{escape(page.title)}</h1>",
        *([_facts_html(page.facts)] if page.facts else []),
        f'<p class="verdict {"good" if page.is_good else "bad"}">{escape(page.verdict)}</p>',
    ]
    if page.messages:
        rows = "\n".join(f"<li>{escape(message)}</li>" for message in page.messages)
        parts.append(f"<ul>\n{rows}\n</ul>")
    if page.explorer:
        parts.append(page.explorer)
    if page.pictures:
        parts.append("<h2>Pictures</h2>")
        parts += [_figure(picture) for picture in page.pictures]
    parts += [table_html(table) for table in page.tables]
    command = f"<pre>{escape(page.command)}</pre>" if page.command else "<p>The plan does not say.</p>"
    parts.append(f"<h2>The command that makes this plan</h2>\n{command}")
    parts.append(f"<footer>{escape(page.footer)}</footer>")
    if page.script:
        parts.append(f"<script>{page.script}</script>")
    parts.append("</body>\n</html>\n")
    return "\n".join(parts)


def _facts_html(facts: Sequence[tuple[str, str]]) -> str:
    parts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{parts}</dl>'


def _policy(script: str) -> str:
    """What the page may do: show what is in it, and run its own script. Pictures have styles of their own."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    allowed = f"'sha256-{digest}'" if script else "'none'"
    rules = {
        "default-src": "'none'", "script-src": allowed, "style-src": "'unsafe-inline'",
        "img-src": "data:", "base-uri": "'none'",
        "form-action": "'none'",
    }  # fmt: skip
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def table_html(table: Table) -> str:
    """A heading and its rows as HTML."""
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in table.rows
    )
    return f"<h2>{escape(table.title)}</h2>\n<table>\n{rows}\n</table>"


def _figure(picture: Picture) -> str:
    caption = escape(picture.caption)
    labelled = picture.svg.replace("<svg", f'<svg role="img" aria-label="{caption}"', 1)
    return f"<figure>\n{labelled}<figcaption>{caption}</figcaption>\n</figure>"
