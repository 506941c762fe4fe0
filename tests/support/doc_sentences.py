"""The sentences of a page: its prose, as a person would read it aloud.

Blocks of code, tables, headings, comments and pictures are left out, and so are inline code and the targets of links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r" *(?:```|~~~)")
_ITEM = re.compile(r" *(?:[-*+]|\d+[.)]) +")
_APART = re.compile(r" *(?:$|\||#{1,6} |</?\w|!\[)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|etc|vs|cf|Eq|Fig|Sec|approx)\.(?=\s+[^\sA-Z])|\b(Eq|Fig|Sec)\.")
_END = re.compile(r"""[.?!]["')*_]*(?:\s+|$)""")
_WORD = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class Sentence:
    """A sentence without its inline code; `line` of the page, from 1, is where it begins."""

    line: int
    text: str

    def words(self) -> list[str]:
        """Whatever stands between blanks and has a letter or a digit."""
        return [word for word in self.text.split() if _WORD.search(word)]


def sentences(page: str) -> Iterator[Sentence]:
    """Each sentence of a page. It ends at a full stop, a question mark, an exclamation mark, or with its list item."""
    for line, text in paragraphs(page):
        plain = _LINK.sub(r"\1", _CODE.sub(_its_lines, text))
        plain = _ABBREVIATION.sub(r"\1\2", plain)
        start = 0
        for end in [*(found.end() for found in _END.finditer(plain)), len(plain)]:
            if sentence := " ".join(plain[start:end].split()):
                blank = len(plain[start:end]) - len(plain[start:end].lstrip())
                yield Sentence(line + plain.count("\n", 0, start + blank), sentence)
            start = end


def _its_lines(found: re.Match[str]) -> str:
    """What stands in place of a part that is left out: lines after it keep their numbers."""
    return " " + "\n" * found.group().count("\n")


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Each paragraph and each list item, with the line on which it begins."""
    fenced, start, held = False, 0, []
    for number, line in enumerate([*_COMMENT.sub(_its_lines, page).split("\n"), ""], start=1):
        fence = _FENCE.match(line) is not None
        fenced ^= fence
        item = _ITEM.match(line)
        apart = fence or fenced or _APART.match(line) is not None
        if (apart or item) and held:
            yield start, "\n".join(held)
            held = []
        if not apart:
            start = start if held else number
            held.append(line[item.end() :] if item else line)
