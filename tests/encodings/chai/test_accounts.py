"""Words that are right: all of their bytes, and none that is cut."""

from __future__ import annotations

import numpy as np

from gapless.encodings.chai.commands.accounts import Account, words_right


def test_a_word_is_right_where_all_its_bytes_are() -> None:
    tokens = np.array([list(b"ut one  two\nthree fo")], dtype=np.int64)
    right = np.ones(tokens.shape, dtype=bool)
    assert words_right(tokens, right) == (3, 3)
    right[0, [0, 9, 19]] = False  # of "ut", "two" and "fo"
    assert words_right(tokens, right) == (3, 2)
    right[0, 2] = False  # a space
    assert words_right(tokens, right) == (3, 2)
    assert words_right(tokens[:, :5], right[:, :5]) == (0, 0)


def test_what_was_not_measured_is_not_said() -> None:
    account = Account(loss=2.0, count=4, right=1, error=float("nan"))
    assert account.data["word_accuracy"] is None
    assert account.data["error"] is None
    assert account.line("x")[1:5] == ["0.5000", "25.0%", "-", "-"]
