"""Rules of others: what Accordion and AdaQS make of norms, decays and deviations; rules with a budget keep it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compression_traces import random_trace

from gapless.encodings.ranks.baselines import RULES, accordion, adaqs
from gapless.encodings.ranks.parameters import DEFAULTS, Parameters
from gapless.encodings.ranks.problem import Problem, problem
from gapless.errors import InputError
from gapless.question.fields import Share


def asked(norm: list[float], learning_rate: list[float], ratio: list[float] | None = None) -> Problem:
    """A layer whose norms, and deviation ratios, are these, epoch by epoch."""
    epochs = len(norm)
    trace = replace(
        random_trace(0, epochs, 1), norm=np.array(norm)[:, None], learning_rate=np.array(learning_rate),
        deviation_ratio=np.array(ratio or norm)[:, None],
    )  # fmt: skip
    return problem(trace, data=Share(0.5), phases="epoch")


def levels(found: np.ndarray) -> list[int]:
    return [int(row[0]) for row in found]


def test_accordion_is_low_before_its_first_look_while_norms_change_and_after_a_decay() -> None:
    every_epoch = Parameters(detection_epochs=1)
    norm, rate = [8.0, 4.0, 3.5, 3.4, 3.3, 3.2], [1.0] * 5 + [0.1]
    # From epoch 2 on there are two norms: 8 -> 4 changes by half, 4 -> 3.5 doesn't; at epoch 5 the rate decays.
    assert levels(accordion(asked(norm, rate), 0, every_epoch, 0)) == [2, 2, 2, 0, 0, 2]


def test_accordion_looks_every_so_many_epochs_and_a_rise_counts_as_a_fall() -> None:
    norm = [1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0]
    assert levels(accordion(asked(norm, [1.0] * 9), 0, Parameters(detection_epochs=2), 0)) == [
        2,
        2,
        2,
        2,
        0,
        0,
        2,
        2,
        0,
    ]


def test_adaqs_takes_the_next_mode_whenever_the_ratio_has_fallen() -> None:
    ratio = [1.0, 0.9, 0.79, 0.7, 0.6, 0.1]
    found = adaqs(asked([1.0] * 6, [1.0] * 6, ratio), 0, DEFAULTS, 0)
    assert levels(found) == [0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("name", ["constant", "first-epochs", "last-epochs", "random"])
@pytest.mark.parametrize("ratio", [0.5, 0.7, 0.9])
def test_rules_with_a_budget_keep_it(name: str, ratio: float) -> None:
    question = problem(random_trace(3, 5, 4), data=Share(ratio), phases="epoch")
    assert question.data_bytes is not None
    modes = RULES[name](question, question.data_bytes, DEFAULTS, 7)
    assert question.sent_bytes(modes) <= question.data_bytes


def test_first_and_last_epochs_are_those() -> None:
    question = problem(random_trace(3, 6, 4), data=Share(0.7), phases="epoch")
    assert question.data_bytes is not None
    first, last = (RULES[name](question, question.data_bytes, DEFAULTS, 0) for name in ("first-epochs", "last-epochs"))
    assert (first[0] == 2).all()
    assert (first[-1] == 0).all()
    assert (first == last[::-1]).all()


def test_parameters_are_numbers_above_zero() -> None:
    with pytest.raises(InputError, match="detection_epochs: must be > 0, got 0"):
        Parameters(detection_epochs=0)
