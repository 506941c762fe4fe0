"""Every backend gives the same known answers to the models that it takes, and refuses the others with a reason."""

from __future__ import annotations

import importlib
from itertools import permutations

import numpy as np
import pytest
from cbc_here import needs_cbc

from gapless.errors import InputError, ModelError, SolverError
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solution import Status, StopReason
from gapless.solvers.registry import backends, load_backend, solve_model


def knapsack() -> Model:
    """Three items of value 4, 5, 6 and weight 3, 4, 5 in a sack of 8: the first and the last, or 10."""
    model = Model("knapsack")
    take = model.binaries("take", 3)
    model.add("capacity", (np.array([3.0, 4.0, 5.0]), take), upper=8.0)
    model.maximize((np.array([4.0, 5.0, 6.0]), take))
    return model


def assignment() -> Model:
    """Three workers, three jobs; the cheapest assignment costs 1 + 2 + 2 = 5, with an offset of 10."""
    model = Model("assignment")
    does = model.binaries("does", (3, 3))
    model.add("worker", (1, does), lower=1, upper=1)
    model.add("job", (1, does.T), lower=1, upper=1)
    model.minimize((np.array([[4, 1, 3], [2, 0, 5], [3, 2, 2]]), does), offset=10.0)
    return model


def transport() -> Model:
    """Two plants with 5 and 7 to send to three shops that want 3, 4 and 5: an inequality network, 18."""
    model = Model("transport")
    sends = model.continuous("sends", (2, 3))
    model.add("plant", (1, sends), upper=np.array([5.0, 7.0]))
    model.add("shop", (1, sends.T), lower=np.array([3.0, 4.0, 5.0]))
    model.minimize((np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 1.0]]), sends))
    return model


def change() -> Model:
    """41 as the fewest coins of 25, 10 and 4: 25 + 4 * 4."""
    model = Model("change")
    coins = model.integers("coins", 3, upper=20)
    model.add("sum", (np.array([25, 10, 4]), coins), lower=41, upper=41)
    model.minimize((1, coins))
    return model


def plain_lp() -> Model:
    """max 3x + 2y, x + y <= 4, x + 3y <= 6, 0 <= x <= 3: x = 3, y = 1."""
    model = Model("lp")
    x, y = model.continuous("x", upper=3.0), model.continuous("y")
    model.add("sum", (1, x), (1, y), upper=4)
    model.add("mix", (1, x), (3, y), upper=6)
    model.maximize((3, x), (2, y))
    return model


def mixed() -> Model:
    """Open a site for 5 to serve up to 10 at 1 each, or buy at 3: a demand of 4 costs 5 + 4."""
    model = Model("mixed")
    is_open, served, bought = model.binaries("is_open"), model.continuous("served"), model.continuous("bought")
    model.add("demand", (1, served), (1, bought), lower=4)
    model.add("site", (1, served), (-10, is_open), upper=0)
    model.minimize((5, is_open), (1, served), (3, bought))
    return model


def infeasible() -> Model:
    """x + y = 1 over even numbers: the relaxation is feasible, the integers are not."""
    model = Model("infeasible")
    x = model.integers("x", 2, upper=10)
    model.add("odd", (np.array([2, -2]), x), lower=1, upper=1)
    model.minimize((1, x))
    return model


def infeasible_network() -> Model:
    """A node that gets 2 at most is asked for 3."""
    model = Model("infeasible_network")
    flow = model.integers("flow", 2, upper=np.array([1, 1]))
    model.add("node", (1, flow), lower=3)
    return model


def unbounded() -> Model:
    """Two numbers that may grow together for ever."""
    model = Model("unbounded")
    x = model.integers("x", 2)
    model.add("apart", (np.array([1, -1]), x), lower=-3, upper=3)
    model.maximize((1, x))
    return model


def empty() -> Model:
    """Nothing to choose, nothing to obey; the objective is its offset."""
    model = Model("empty")
    model.minimize(offset=3.0)
    return model


def empty_infeasible() -> Model:
    """No columns, and a row that nothing can fill."""
    model = Model("empty_infeasible")
    model.add_sparse("unmet", 1, [], [], [], lower=1)
    return model


def no_rows() -> Model:
    """Every column at its better bound: 2 * 3 - 1 * (-1)."""
    model = Model("no_rows")
    x = model.integers("x", 3, lower=-1, upper=3)
    model.maximize((np.array([2, -1, 0]), x))
    return model


def fixed_by_row() -> Model:
    """Integers without upper bounds that a row bounds: 2x + 3y <= 12, x >= y, max x + 2y: 3 + 2 * 2."""
    model = Model("fixed_by_row")
    x, y = model.integers("x"), model.integers("y")
    model.add("total", (2, x), (3, y), upper=12)
    model.add("order", (1, x), (-1, y), lower=0)
    model.maximize((1, x), (2, y))
    return model


ANSWERS: list[tuple[Model, Status, float | None, tuple[str, ...]]] = [
    (knapsack(), Status.OPTIMAL, 10.0, ("highs", "cpsat", "pulp", "pulp:HiGHS")),
    (assignment(), Status.OPTIMAL, 15.0, ("highs", "cpsat", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (transport(), Status.OPTIMAL, 18.0, ("highs", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (change(), Status.OPTIMAL, 5.0, ("highs", "cpsat", "pulp", "pulp:HiGHS")),
    (plain_lp(), Status.OPTIMAL, 11.0, ("highs", "pulp", "pulp:HiGHS")),
    (mixed(), Status.OPTIMAL, 9.0, ("highs", "pulp", "pulp:HiGHS")),
    (infeasible(), Status.INFEASIBLE, None, ("highs", "cpsat", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (infeasible_network(), Status.INFEASIBLE, None, ("highs", "cpsat", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (unbounded(), Status.UNBOUNDED, None, ("highs", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (empty(), Status.OPTIMAL, 3.0, ("highs", "cpsat", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (empty_infeasible(), Status.INFEASIBLE, None, ("highs", "cpsat", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (no_rows(), Status.OPTIMAL, 7.0, ("highs", "cpsat", "pulp", "pulp:HiGHS", "min_cost_flow")),
    (fixed_by_row(), Status.OPTIMAL, 7.0, ("highs", "cpsat", "pulp", "pulp:HiGHS")),
]

CASES = [
    pytest.param(model, status, objective, solver, id=f"{solver}-{model.name}")
    for model, status, objective, solvers in ANSWERS
    for solver in solvers
]


@pytest.mark.parametrize(("model", "status", "objective", "solver"), CASES)
def test_every_backend_gives_the_known_answer(
    model: Model, status: Status, objective: float | None, solver: str
) -> None:
    solution = solve_model(model, SolveOptions(threads=1), solver)
    assert solution.status is status
    assert solution.stop_reason is StopReason.FINISHED
    assert solution.solver == solver
    if objective is None:
        assert solution.values is None
        assert solution.objective is None
        assert solution.bound is None
    else:
        assert solution.values is not None
        assert solution.objective == pytest.approx(objective)
        assert solution.bound == pytest.approx(objective)
        assert model.arrays().violation(solution.values) <= 1e-6


def conditional() -> Model:
    """Three jobs on one machine, the first not before 6 if a flag that must be set is: all done at 12."""
    model = Model("jobs")
    start, flag, end = model.integers("start", 3, 0, 20), model.binaries("flag"), model.integers("end", (), 0, 40)
    model.no_overlap("machine", [(start, [3, 4, 5])])
    model.add("late", (1, start[:1]), lower=6, only_if=flag)
    model.add("set", (1, flag), lower=1)
    model.add("end", (1, end), (-1, start[:, None]), lower=np.array([3, 4, 5]))
    model.minimize((1, end))
    return model


@pytest.mark.parametrize("solver", ["highs", "cpsat", "pulp"])
def test_conditional_rows_and_disjunctions_go_to_every_milp_backend(solver: str) -> None:
    model = conditional()
    solution = solve_model(model, SolveOptions(threads=1), solver)
    assert solution.status is Status.OPTIMAL
    assert solution.objective == 12
    assert solution.values is not None
    assert solution.values.shape == (model.column_count,)
    assert model.arrays().violation(solution.values) == 0


@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_an_activity_that_may_be_left_out_goes_to_every_milp_backend(solver: str) -> None:
    """Jobs of 3 and 4, the second of which is left out for 2."""
    model = Model("optional")
    start, is_there, end = (
        model.integers("start", 2, 0, 20),
        model.binaries("is_there"),
        model.integers("end", (), 0, 40),
    )
    model.no_overlap("machine", [(start, [3, 4], [-1, is_there])])
    model.add("end", (1, end), (-1, start[:, None]), lower=np.array([3, 4]), only_if=np.array([-1, is_there]))
    model.minimize((1, end), (-2.0, is_there), offset=2.0)
    solution = solve_model(model, SolveOptions(threads=1), solver)
    assert solution.objective == 5
    assert solution.values is not None
    assert model.arrays().violation(solution.values) == 0


def shared(demands: list[int], capacity: int) -> Model:
    """Jobs of 3, 4, 5 and 2 that hold a share of one capacity while they run; the least time in which all are done."""
    model, lengths = Model("shared"), np.array([3, 4, 5, 2])
    start, end = model.integers("start", 4, 0, 20), model.integers("end", (), 0, 40)
    model.cumulative("machines", start, start, lengths, demands, capacity)
    model.add("end", (1, end), (-1, start[:, None]), lower=lengths)
    model.minimize((1, end))
    return model


def in_turn(demands: list[int], capacity: int) -> int:
    """The same by trying all orders: each job as early as those before it leave room for it."""
    lengths, least = [3, 4, 5, 2], 99
    for jobs in permutations(range(4)):
        held = np.zeros(40, dtype=int)
        for job in jobs:
            start = next(t for t in range(40) if (held[t : t + lengths[job]] + demands[job] <= capacity).all())
            held[start : start + lengths[job]] += demands[job]
        least = min(least, int(np.flatnonzero(held).max()) + 1)
    return least


@pytest.mark.parametrize("demands", [[1, 1, 1, 1], [2, 2, 1, 1], [3, 1, 2, 2], [1, 3, 3, 1]])
@pytest.mark.parametrize("capacity", [3, 4])
def test_activities_share_a_capacity_as_in_all_orders(demands: list[int], capacity: int) -> None:
    solution = solve_model(shared(demands, capacity), SolveOptions(threads=1), "cpsat")
    assert (solution.status, solution.objective) == (Status.OPTIMAL, in_turn(demands, capacity))


def test_thousands_of_activities_share_a_capacity() -> None:
    """CP-SAT adds up the domains of all lengths, and refuses a sum that 64 bits don't hold."""
    model = Model("many")
    start = model.integers("start", 3000, 0, 9)
    model.cumulative("machines", start, start, 1, 1, 300)
    solution = solve_model(model, SolveOptions(threads=1), "cpsat")
    assert solution.values is not None
    assert np.bincount(np.round(solution.values).astype(int)).max() <= 300


def test_a_shared_capacity_goes_to_cpsat_alone() -> None:
    with pytest.raises(ModelError, match=r"family 'machines': .* not linearised; use --solver cpsat"):
        solve_model(shared([1, 1, 1, 1], 2), SolveOptions(threads=1), "highs")


def test_cpsat_takes_whole_demands_only() -> None:
    model = Model("halves")
    start = model.integers("start", 2, 0, 9)
    model.cumulative("machines", start, start, 1, 0.5, 1)
    with pytest.raises(InputError, match="family 'machines': delays and demands must be whole numbers"):
        solve_model(model, SolveOptions(threads=1), "cpsat")


def test_conditional_rows_are_no_network() -> None:
    with pytest.raises(InputError, match="'jobs': must have no conditional rows"):
        solve_model(conditional(), solver="min_cost_flow")


def test_integer_values_are_whole_numbers() -> None:
    model = fixed_by_row()
    for solver in ("highs", "cpsat", "pulp"):
        values = solve_model(model, SolveOptions(threads=1), solver).values
        assert values is not None
        assert values.tolist() == [3.0, 2.0]


def test_objectives_in_microseconds_are_solved_to_the_end() -> None:
    model = Model("small_costs")
    draw = np.random.default_rng(3)
    take = model.binaries("take", 30)
    weight, value_s = draw.integers(20, 60, 30), draw.integers(20, 60, 30) * 1e-9
    model.add("capacity", (weight, take), upper=400)
    model.maximize((value_s, take))
    scaled = Model("scaled")
    scaled.binaries("take", 30)
    scaled.add("capacity", (weight, take), upper=400)
    scaled.maximize((np.round(value_s * 1e9), take))
    exact = solve_model(scaled, SolveOptions(threads=1)).objective
    assert exact is not None
    for solver in ("highs", "pulp"):
        solution = solve_model(model, SolveOptions(threads=1), solver)
        assert solution.status is Status.OPTIMAL
        assert solution.objective == pytest.approx(exact * 1e-9, rel=1e-9)


@pytest.mark.parametrize("solver", ["highs", "cpsat", pytest.param("pulp", marks=needs_cbc)])
def test_a_gap_that_is_reached_is_no_proof(solver: str) -> None:
    draw = np.random.default_rng(1)
    model = Model("loose")
    take = model.binaries("take", 60)
    model.add("capacity", (draw.integers(20, 99, (5, 60)), np.broadcast_to(take, (5, 60))), upper=900)
    model.maximize((draw.integers(20, 99, 60), take))
    solution = solve_model(model, SolveOptions(threads=1, gap=0.5), solver)
    assert solution.status in (Status.FEASIBLE, Status.OPTIMAL)
    if solution.status is Status.FEASIBLE:
        assert solution.stop_reason is StopReason.GAP_REACHED
    assert solution.bound is not None
    assert solution.gap is not None
    assert solution.gap <= 0.5
    assert (solution.status is Status.OPTIMAL) == (solution.gap <= 1e-6)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        ("hihgs", "solver must be one of highs, cpsat, pulp, min_cost_flow, got 'hihgs'; did you mean 'highs'"),
        ("gurobi_direct", "solver must be one of highs"),
        ("highs:fast", "solver 'highs' has no variants"),
        ("pulp:HiGSH", "must be a name that PuLP knows; did you mean 'pulp:HiGHS'"),
    ],
)
def test_an_unknown_solver_is_named_with_those_that_are_known(solver: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve_model(knapsack(), solver=solver)


def test_a_solver_that_pulp_does_not_find_is_a_solver_error() -> None:
    with pytest.raises(SolverError, match=r"pulp:COPT_CMD.*it finds .*HiGHS"):
        solve_model(knapsack(), solver="pulp:copt_cmd")


def test_pulp_without_cbc_is_highs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("gapless.solvers.pulp"), "_cbc", lambda library, name: None)
    solution = solve_model(knapsack(), solver="pulp")
    assert solution.status is Status.OPTIMAL
    assert solution.version.endswith(" with HiGHS")
    with pytest.raises(SolverError, match="pip install cbcbox brings one, and a cbc on the PATH is found"):
        solve_model(knapsack(), solver="pulp:COIN_CMD")


def test_a_library_that_is_missing_is_a_solver_error(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = importlib.import_module("gapless.solvers.registry")
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert not any(info.is_found for info in backends())
    with pytest.raises(SolverError, match="solver 'cpsat': needs ortools; pip install ortools"):
        solve_model(knapsack(), solver="cpsat")


def test_a_start_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match=r"start must hold 3 values, one per column, got shape \(2,\)"):
        solve_model(knapsack(), start=[0, 1])


def test_backends_are_listed_with_versions() -> None:
    listed = {info.name: info for info in backends(look_inside=True)}
    assert [*listed][:4] == ["highs", "cpsat", "pulp", "min_cost_flow"]
    assert listed["highs"].version == load_backend("highs")
    assert "pulp:HiGHS" in listed
    assert all(info.is_found for info in listed.values())


@pytest.mark.parametrize("name", ["highs", "pulp", "min_cost_flow"])
def test_unbounded_program_is_not_called_infeasible(name: str) -> None:
    """HiGHS 1.13.1 by itself answers that this one, found at random, is infeasible; it has feasible points."""
    inf = np.inf
    model = Model("unbounded")
    upper = [inf, inf, 5.0, 3.0, 3.0, 3.0, 3.0, inf, inf, 5.0]
    x = model.continuous("x", 10, [0.0, 0.0, -inf, -inf, 0.0, 0.0, 0.0, 0.0, -inf, 0.0], upper)
    balance = np.array([[1, 0, 0, 1, 1, 0, 0, 1, 1, 0], [-1, 0, 1, -1, -1, 0, 0, -1, -1, -1]], dtype=float)
    model.add("node", (balance, np.stack([x, x])), lower=-2.0)
    model.maximize((np.array([0.0, 0.0, 2.0, -1.0, 0.0, 0.5, 0.5, 0.5, 2.0, 0.0]), x))
    assert solve_model(model, SolveOptions(threads=1), name).status is Status.UNBOUNDED
