"""Megatron-core's layouts of pipeline stages, read by their grammar.

Letters stand for layers: E, t, m, L. A bar ends a stage, `t*3` and `(tt|)*2` repeat, commas mean nothing. Written from
the description in Megatron-core's documentation, apart from what writes them.
"""

from __future__ import annotations

__all__ = ["read_layout"]


def read_layout(text: str) -> list[str]:
    """The letters of each stage. Raises `ValueError` where the text isn't of the grammar."""
    flat, rest = _sequence(text.replace(",", ""), inside=False)
    if rest:
        raise ValueError(f"not read: {rest!r}")
    return flat.split("|")


def _sequence(text: str, inside: bool) -> tuple[str, str]:
    """All letters and bars, repeated as often as is said, and what is left behind a closing bracket."""
    found = ""
    while text and not (inside and text[0] == ")"):
        if text[0] == "(":
            part, text = _sequence(text[1:], inside=True)
            text = text[1:]
        elif text[0] in "EtmL|":
            part, text = text[0], text[1:]
        else:
            raise ValueError(f"unknown: {text!r}")
        count = 1
        if text.startswith("*"):
            digits = text[1:][: len(text[1:]) - len(text[1:].lstrip("0123456789"))]
            count, text = int(digits), text[1 + len(digits) :]
        found += part * count
    return found, text
