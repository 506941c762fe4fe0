"""Nothing stands twice: a paragraph of the documentation is on one page, once, and so is a long sentence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from doc_pages import ROOT, pages
from doc_sentences import paragraphs, sentences

PARAGRAPH_WORDS, SENTENCE_WORDS = 10, 15
"""Shorter ones are labels: the date below a table, the name of what follows."""

TUTORIALS = re.compile(
    r"In a checkout of gapless, with Python|Then go to an empty folder|Most steps below are given twice"
    r"|`plan.json` and `same.json` hold the same plan"
)
"""How paragraphs begin that each tutorial says itself, once: it is followed alone, from its first line to its last."""


def long_ones(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page that say something, then its long sentences, with the lines on which they begin."""
    for line, paragraph in paragraphs(text):
        if len(words := paragraph.split()) >= PARAGRAPH_WORDS:
            yield line, " ".join(words)
    for sentence in sentences(text):
        if len(sentence.words()) >= SENTENCE_WORDS:
            yield sentence.line, sentence.text


def is_for_each_tutorial(text: str, found: list[tuple[Path, int]]) -> bool:
    on = [page for page, _ in found]
    return (
        TUTORIALS.match(text) is not None
        and len(set(on)) == len(on)
        and all(page.parent.name == "tutorials" for page in on)
    )


def test_a_paragraph_is_found_whatever_its_lines_and_comments() -> None:
    page = "# Title\n\nOne\ntwo.\n<!-- no -->\n- three\n  four\n\n```sh\nno\n```\n| no |\n\nfive\n"
    assert [(line, " ".join(text.split())) for line, text in paragraphs(page)] == [
        (3, "One two."), (6, "three four"), (14, "five"),
    ]  # fmt: skip


def test_nothing_stands_twice() -> None:
    places = defaultdict(list)
    for page in [*pages(), ROOT / "CONTRIBUTING.md"]:
        for line, text in long_ones(page.read_text(encoding="utf-8")):
            if (page, line) not in places[text]:  # a sentence that is the whole paragraph
                places[text].append((page, line))
    twice = [
        f"{', '.join(f'{page.relative_to(ROOT)}:{line}' for page, line in found)}: {text[:60]} ..."
        for text, found in places.items()
        if len(found) > 1 and not is_for_each_tutorial(text, found)
    ]
    assert not twice, "say these once, and point there:\n" + "\n".join(twice)
