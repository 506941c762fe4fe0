"""Prose is plain: no sentence of a page is longer than a person can follow."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
from doc_pages import ROOT, pages
from doc_sentences import Sentence, sentences

from gapless.cli.commands import build_parser

MOST_WORDS = 30


def test_a_sentence_ends_where_a_reader_stops() -> None:
    page = (
        "# A heading. With two\n\nOne, e.g. this; or\nthat: `a. b` [x y](http://a.b c). Two 0.5 %? Three.\n"
        "- four\n  more\n- five (so.) six\n\n| no. yes |\n\n```sh\nno. yes\n```\n<!-- no.\n yes -->seven\n"
    )
    assert list(sentences(page)) == [
        Sentence(3, "One, e.g this; or that: x y."),
        Sentence(4, "Two 0.5 %?"),
        Sentence(4, "Three."),
        Sentence(5, "four more"),
        Sentence(7, "five (so.)"),
        Sentence(7, "six"),
        Sentence(15, "seven"),
    ]
    assert Sentence(1, "a 5 % b, + [c]").words() == ["a", "5", "b,", "[c]"]


@pytest.mark.parametrize(
    "page",
    [*pages(), ROOT / "CONTRIBUTING.md"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_no_sentence_is_too_long(page) -> None:
    name = page.relative_to(ROOT)
    too_long = [
        f"{name}:{sentence.line}: {count} words, at most {MOST_WORDS}: {' '.join(sentence.words()[:8])} ..."
        for sentence in sentences(page.read_text(encoding="utf-8"))
        if (count := len(sentence.words())) > MOST_WORDS
    ]
    assert not too_long, "split these sentences:\n" + "\n".join(too_long)


def commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """A command and all below it, by name."""
    yield name, parser
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below, command in action.choices.items():
                yield from commands(command, f"{name} {below}")


def test_no_sentence_of_the_help_is_too_long_and_every_argument_is_explained() -> None:
    for name, parser in commands(build_parser(), "gapless"):
        paragraphs = f"{parser.description or ''}\n\n{parser.epilog or ''}".split("\n\n")
        about = [text for text in paragraphs if not text.lstrip().startswith(("exit codes:", "example"))]
        actions = parser._actions  # noqa: SLF001
        for text in [*about, *(action.help or "" for action in actions)]:
            for sentence in sentences(text):
                assert len(sentence.words()) <= MOST_WORDS, f"{name} --help: {sentence.text}"
        for action in actions:
            is_explained = action.help or isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
            assert is_explained, f"{name} --help: {action.dest}"
