"""The field's words, in pages, names and messages.

A word of our own that a reader of the papers wouldn't know is renamed, not explained.
docs/glossary.md defines the words that are used instead.
"""

from __future__ import annotations

import pkgutil
import re
from collections import Counter
from importlib.util import find_spec

import pytest
from doc_pages import ROOT, pages
from product_words import identifiers, prose, sources

INSTEAD = {
    r"ways?": "path; of an op: implementation",
    r"doors?": "port",
    r"homes?": "root, owner",
    r"shak(?:e|es|en|ing)|shook": "perturb",
    r"in vain": "without improvement",
    r"told|tells?": "report, say",
    r"wish(?:es|ed)?": "say what it is",
    r"whom": "say what it is",
    r"boards?|ground": "quotient problem, quotient network",
    r"pods?": "bottleneck set",
    r"whole messages?": "aggregated sends",
    r"halving": "gossip bound",
    r"tastes?": "the parameters of a randomised construction",
    r"what comes? out": "the plan, the answer",
}
"""What must not stand as a word of prose, and what stands in its place."""

ALLOWED = {
    r"(?:both|each|other|either|one|which|same|this|that|half|by the) way(?:s)?\b": "directions, or plain English",
    r"\bway(?:s)? (?:out|round|back|to)\b": "plain English: what a user can do",
    r"\bin (?:a|the|no) way\b|\bway (?:in which|that)\b": "plain English",
    r"\b(?:recursive )?halving(?:-| and )doubling|recursive[ -]halving": "names of libraries' algorithms",
    r"\bunder way\b": "plain English",
    r"\bsuccessive halving\b": "the name of a search among configurations (Jamieson and Talwalkar)",
    r"[`\"]ways[`\"]": "a field of a training graph's file",
    r"\bby whom\b": "plain English",
    r"\bboard power": "what a data sheet calls the power of a card",
    r"\bpods? or groups?\b": "a fat tree's pods: Al-Fares et al.'s own word",
}
"""Other senses of these words, and why each may stand."""

NAMES = frozenset(
    "way ways door doors home homes shaken told wish whom board boards ground pod pods taste tastes".split()  # noqa: SIM905
)
"""Words that no name in the product's code may contain, between underscores; nor is any of them `its`."""

ALLOWED_NAMES = {
    "way_out": "what a user can do about an error",
    "both_ways": "a field of the topology's file: a link each way",
}

OWN_WORDS = {
    "topologies/families.py": "pods of a fat tree, Al-Fares et al.'s own word",
}
"""Files whose words are those of a paper."""

USERS = frozenset({"train.py", "gapless.encodings.spreading", "gapless.spreading.solve", "gapless.systems"})
"""What a page has its reader make, and the group of entry points for it."""


def found(text: str) -> Counter[str]:
    """The words of `INSTEAD` that stand in `text` in none of the senses that are allowed."""
    wrong = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
    if wrong.search(text):  # seldom
        for phrase in ALLOWED:
            text = re.sub(phrase, " ", text, flags=re.IGNORECASE)
    return Counter(word.lower() for word in wrong.findall(text))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_fields_words(page):
    assert not found(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "path",
    [path for path in sources() if path.relative_to(ROOT).as_posix() not in OWN_WORDS],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_code_uses_the_fields_words(path):
    text = path.read_text(encoding="utf-8")
    names = {name.lower() for name in identifiers(text)} - ALLOWED_NAMES.keys()
    assert not {name for name in names if name == "its" or NAMES.intersection(name.split("_"))}
    assert not found(prose(text))


def test_each_term_of_the_glossary_stands_once_in_its_section():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        terms = re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]
        assert terms == sorted(set(terms), key=str.lower)


def test_each_term_of_the_glossary_is_used_somewhere():
    glossary = ROOT / "docs" / "glossary.md"

    def words(text: str) -> str:
        return " " + re.sub(r"[\W_]+", " ", text.lower())

    used = "".join(words(path.read_text(encoding="utf-8")) for path in (*pages(), *sources()) if path != glossary)
    for term in re.findall(r"^\| (?!term )([^|]+?) \|", glossary.read_text(encoding="utf-8"), re.MULTILINE):
        for part in re.sub(r" \(.*\)|, of time", "", term).split(", "):
            assert re.sub(r"(?:e|s|ion|y)$", "", words(part)) in used, term


def test_every_file_that_a_page_names_is_there():
    scripts = (path for folder in ("tests", "docs") for path in (ROOT / folder).rglob("*.py"))
    there = {f"/{path.as_posix()}" for path in (*sources(), *scripts)}
    named = set()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        own = USERS.union(re.findall(r"^<!-- file: (\S+) -->$", text, re.MULTILINE))
        names = set(re.findall(r"`(?:gapless/)?((?:\w+/)*\w+\.py)`", text))
        named |= {(page.name, name) for name in names - own}
    assert not sorted(entry for entry in named if not any(path.endswith(f"/{entry[1]}") for path in there))


def test_every_dotted_name_of_a_page_exists():
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    for name in sorted(set(re.findall(r"`(gapless(?:\.\w+)+)(?![\w-])", text))):
        if name not in USERS and (not name.startswith("gapless.torch") or find_spec("torch") is not None):
            assert pkgutil.resolve_name(name) is not None
