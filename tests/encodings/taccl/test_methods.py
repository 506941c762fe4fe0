"""Methods: a parameter file names those that are tried; what it leaves out makes no plan."""

from __future__ import annotations

import pytest
from golden import LITTLE_WORK

import gapless
from gapless.encodings.taccl.methods import NAMES
from gapless.errors import InputError
from gapless.result import Result

MADE_BY = {"phase-by-phase": "aggregated", "through-one-rank": "aggregated", "exchange": "aggregated"}
"""How the provenance says it."""


def solved(only: tuple[str, ...] = (), without: tuple[str, ...] = (), **asked: str) -> Result:
    parameters = {**LITTLE_WORK, "methods": {"only": list(only), "without": list(without)}}
    return gapless.taccl.solve(
        **{"topology": "line:4", "collective": "allreduce", "size": "1MB", "parameters": parameters, **asked}
    )


@pytest.mark.parametrize("name", [name for name in NAMES[1:] if name != "switched"])
def test_a_method_alone_makes_the_plan(name: str) -> None:
    """Or the first plan does, where a method has none."""
    method, first = (solved((one,)).details["provenance"]["method"] for one in (name, "first"))
    assert method.partition(":")[0] in (MADE_BY.get(name, name).removesuffix("s"), MADE_BY.get(name, name), first)


def test_without_the_best_method_another_makes_the_plan() -> None:
    every = solved()
    best = every.details["provenance"]["method"]
    assert best == "trees"
    other = solved(without=("trees",))
    assert other.details["provenance"]["method"] != "trees"
    assert other.report.makespan_s > every.report.makespan_s
    assert solved(("trees",)).report.makespan_s == every.report.makespan_s


def test_names_that_no_method_has_are_refused() -> None:
    with pytest.raises(InputError, match=r"methods.only: 'gready' is no method"):
        solved(("gready",))
    with pytest.raises(InputError, match="methods: must leave milp, which the question asks for"):
        solved(without=("milp",), method="milp")


@pytest.mark.thorough
def test_without_a_gap_no_small_number_of_chunks_is_left_out() -> None:
    """A search that tries 4 and 6 chunks, and then little else, ends with 44 us."""
    asked = {"topology": "ring:5,alpha_us=4,beta_us_per_mb=8000", "collective": "broadcast", "size": "4KB"}
    found = gapless.taccl.solve(**asked, gap=0.0)
    in_five = gapless.taccl.solve(**asked, gap=0.0, chunks=5)
    assert found.report.makespan_s == pytest.approx(41.6e-6)
    assert found.report.makespan_s <= in_five.report.makespan_s * (1 + 1e-9)
