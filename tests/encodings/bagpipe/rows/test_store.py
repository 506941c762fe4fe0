"""Rows of a trainer: what isn't there is an error, and changes are undone. Without torch: skipped."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.encodings.bagpipe.rows.served import Served
from gapless.encodings.bagpipe.rows.store import Journal, RowStore
from gapless.errors import InputError
from gapless.torch.embeddings.sharding import Sharding


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def store_of(*numbers: int, journal: Journal | None = None) -> RowStore:
    store = RowStore(2, journal)
    store.add(ids(*numbers), torch.tensor(numbers)[:, None].expand(-1, 2).float())
    return store


@pytest.mark.parametrize("wrong", ["read", "changed", "added", "dropped, then read"])
def test_a_row_that_the_plan_did_not_bring_is_an_error(wrong: str) -> None:
    store = store_of(1, 5)
    if wrong.startswith("dropped"):
        store.drop(ids(5, 6), batch=0)
    calls = {
        "read": lambda: store.read(ids(1, 6)), "changed": lambda: store.change(ids(6), torch.zeros(1, 2), batch=0),
        "added": lambda: store.add(ids(5), torch.zeros(1, 2)), "dropped, then read": lambda: store.read(ids(5)),
    }  # fmt: skip
    rule = "must not be there already" if wrong == "added" else "must be there; the plan didn't bring or keep it"
    with pytest.raises(InputError, match=re.escape(rule)):
        calls[wrong]()


@pytest.mark.parametrize("back", range(4))
@pytest.mark.parametrize("seed", range(3))
def test_rows_go_back_to_where_a_batch_was_over(seed: int, back: int) -> None:
    chance, journal = np.random.default_rng(seed), Journal()
    store, held, states = store_of(*range(8), journal=journal), set(range(8)), []
    for batch in range(7):
        changed = ids(*sorted(chance.choice(sorted(held), 2, replace=False)))
        store.change(changed, store.read(changed) + batch + 1, batch)
        dropped, new = sorted(held)[batch % len(held)], 100 * (batch + 1)
        store.drop(ids(dropped), batch)
        store.add(ids(new), torch.full((1, 2), float(new)))  # as what is fetched ahead, and isn't in the journal
        held = held - {dropped} | {new}
        states.append((ids(*sorted(held)), store.all()))
    expected, values = states[6 - back]
    store.go_back(6 - back, expected)
    assert torch.equal(store.all(), values)


def test_what_is_forgotten_stays_as_it_is() -> None:
    journal = Journal()
    store = store_of(1, journal=journal)
    for batch in range(3):
        store.change(ids(1), torch.full((1, 2), 10.0 + batch), batch)
    journal.forget(2)
    store.go_back(-1, ids(1))
    assert store.all().tolist() == [[11.0, 11.0]]


def test_a_server_goes_back() -> None:
    served = Served(torch.zeros(3, 2), "rowwise-adagrad", Sharding((3,), 1), journal=Journal())
    for batch in range(3):
        served.write(ids(0, batch), torch.full((2, 3), 1.0 + batch), batch)
    served.go_back(0)
    assert served.weights.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert served.state.tolist() == [[1.0], [0.0], [0.0]]
