"""`--choose` and `--subject-to`: what they mean, and what is wrong in one line."""

from __future__ import annotations

import pytest

from gapless.errors import InputError
from gapless.sweeps.measured import read_question
from gapless.sweeps.measured.measure_file import Metric

METRICS = [Metric("rate", "r", "", 1.0), Metric("memory", "m", "bytes", 1.0), Metric("latency", "l", "s", 1.0)]


def test_a_question_has_an_aim_and_limits_in_the_units_of_the_metrics() -> None:
    question = read_question(METRICS, "max:rate", ["memory<=1GiB", "latency <= 5ms", "rate>=2.5"])
    assert (question.metric, question.sign) == (0, 1)
    assert [(limit.metric, limit.sign, limit.value) for limit in question.limits] == [
        (1, 1, 2**30),
        (2, 1, 0.005),
        (0, -1, 2.5),
    ]
    assert question.axes == [(0, 1), (1, -1), (2, -1)]
    assert read_question(METRICS, "min:latency").axes == [(2, -1)]


BAD = [
    ("rate", [], "--choose: must be max:METRIC or min:METRIC, got 'rate'"),
    ("most:rate", [], "--choose: must be max:METRIC or min:METRIC, got 'most:rate'"),
    ("max:rat", [], "must name a metric of the file, one of rate, memory, latency, got 'rat'; did you mean 'rate'?"),
    ("max:rate", ["memory<1GiB"], "--subject-to: must be METRIC<=VALUE or METRIC>=VALUE, got 'memory<1GiB'"),
    ("max:rate", ["memory<="], "--subject-to: must be METRIC<=VALUE or METRIC>=VALUE, got 'memory<='"),
    ("max:rate", ["mem<=1"], "--subject-to: must name a metric of the file, one of rate, memory, latency, got 'mem'"),
    ("max:rate", ["memory<=1GX"], "--subject-to: memory: must be a number and a unit such as 1MB"),
    ("max:rate", ["latency<=5"], "--subject-to: latency: must be a number and a unit such as 10us"),
    ("max:rate", ["rate>=fast"], "--subject-to: rate: must be a finite number, got 'fast'"),
    ("max:rate", ["rate>=nan"], "--subject-to: rate: must be a finite number, got 'nan'"),
]  # fmt: skip


@pytest.mark.parametrize(("choose", "limits", "message"), BAD, ids=[message[:50] for *_, message in BAD])
def test_what_is_wrong_names_the_option(choose: str, limits: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_question(METRICS, choose, limits)
    assert message in str(raised.value)
