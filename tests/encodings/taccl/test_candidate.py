"""What a plan of TACCL decides beside its transfers: saved, read as typed data, refused where it can't be that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.encodings.taccl.candidate import CollectiveDecision
from gapless.encodings.taccl.solve import challenges
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.result import Result

PLAIN = {"topology": "ring:4", "collective": "alltoall", "size": "1MB"}
SKETCHED = {"topology": "mi300x", "sketch": "mi300x-sk-1", "collective": "allgather", "size": "1MB"}
LITTLE = {"chunking": {"rows": 2_000, "most_numbers": 2}, "methods": {"only": ["greedy"]}}


def solved(**asked: Any) -> Result:
    return gapless.taccl.solve(**(asked or PLAIN), parameters=LITTLE)


def changed(result: Result, path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    result.save(path)
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize("asked", [PLAIN, SKETCHED], ids=["on all links", "sketch"])
def test_a_decision_is_saved_and_read_as_typed_data(asked: dict[str, str], tmp_path: Path) -> None:
    result = solved(**asked)
    result.save(tmp_path / "plan.json")
    again = gapless.load(tmp_path / "plan.json").decision
    assert isinstance(again, CollectiveDecision)
    assert again == result.decision
    assert asdict(again) == result.details["provenance"]
    assert again.sketch == asked.get("sketch")


@pytest.mark.parametrize("asked", [PLAIN, SKETCHED], ids=["on all links", "sketch"])
def test_a_plan_of_before_has_it_as_provenance_or_in_its_problem(asked: dict[str, str], tmp_path: Path) -> None:
    result, path = solved(**asked), tmp_path / "plan.json"
    old = read_plan(changed(result, path, lambda data: data.pop("decision")))
    assert CollectiveDecision.of(old) == result.decision

    def without(data: dict[str, Any]) -> None:
        del data["decision"], data["details"]["provenance"]

    older = CollectiveDecision.of(read_plan(changed(result, path, without)))
    assert isinstance(result.decision, CollectiveDecision)
    assert (older.method, older.chunks, older.sketch) == (
        result.decision.method, result.decision.chunks, result.decision.sketch,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data["decision"].update(chunks=0), "decision: chunks: must be"),
        (lambda data: data["decision"].pop("method"), "decision: field 'method' is missing"),
        (lambda data: data["decision"].update(sketch=3), "decision: sketch: must be a string, got 3"),
        (lambda data: data["decision"].update(more=1), "decision: .*more"),
    ],
)
def test_what_is_no_decision_is_refused(change: Callable[[dict[str, Any]], object], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"plan.json: {says}"):
        gapless.load(changed(solved(), tmp_path / "plan.json", change))


@pytest.mark.parametrize(
    ("provenance", "says"),
    [("greedy", "details: provenance: must be an object"), ({"method": "greedy"}, "details: provenance: .*variant")],
)
def test_an_account_of_before_that_is_broken_is_refused(provenance: object, says: str, tmp_path: Path) -> None:
    def broken(data: dict[str, Any]) -> None:
        del data["decision"]
        data["details"]["provenance"] = provenance

    path = changed(solved(), tmp_path / "plan.json", broken)
    with pytest.raises(InputError, match=f"plan.json: {says}"):
        CollectiveDecision.of(read_plan(path), str(path))


def test_a_challenge_asks_for_the_plan_s_own_number_of_chunks_of_what_goes_to_one_rank() -> None:
    result = solved()
    assert isinstance(result.decision, CollectiveDecision)
    own = challenges(gapless.taccl.problem(**PLAIN), result.plan)[-1]
    assert own.values == {"chunks": result.decision.chunks}
    assert result.problem.description["chunks_per_rank"] == 4 * result.decision.chunks
