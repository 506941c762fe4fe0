"""Random instances of sharding by the shape of their graph, a model of them for CP-SAT, and an evaluator: all of it
written apart from what solves them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gapless.encodings.sharding.instances.instance import Instance

__all__ = ["FAMILIES", "cp_sat_optimum", "drawn_of_family", "evaluated"]

FAMILIES = ("tree", "grid", "hub", "any", "tight")
_SHUT = 10**18


def _edges(family: str, nodes: int, chance: random.Random) -> Iterator[tuple[int, int]]:
    if family == "grid":
        wide = max(2, round(nodes**0.5))
        for node in range(nodes):
            if node % wide:
                yield node - 1, node
            if node >= wide:
                yield node - wide, node
    elif family == "hub":
        yield from ((0, node) for node in range(1, nodes))
        yield from ((node, node + 1) for node in range(1, nodes - 1) if chance.random() < 0.5)
    else:
        yield from ((chance.randrange(node), node) for node in range(1, nodes))
        for _ in range(nodes if family in ("any", "tight") else 0):
            first, second = chance.sample(range(nodes), 2)
            yield first, second


def _table(chance: random.Random, rows: int, columns: int, planted: tuple[int, int] | None) -> list[list[int]]:
    """Pairs that must agree, one for one; or costs, of which some are forbidden, but not the planted pair."""
    if rows == columns and chance.random() < 0.35:
        places = chance.sample(range(columns), columns)
        if planted is not None:
            here, there = places.index(planted[1]), planted[0]
            places[here], places[there] = places[there], places[here]
        return [[0 if places[i] == j else _SHUT for j in range(columns)] for i in range(rows)]
    share = chance.choice((0.0, 0.1, 0.4))
    return [
        [_SHUT if (i, j) != planted and chance.random() < share else chance.randrange(1000) for j in range(columns)]
        for i in range(rows)
    ]


def drawn_of_family(family: str, seed: int) -> Instance:
    """Eight to fourteen nodes with up to four choices. Three of four have a plan that is planted; of tight ones, the
    limit is what it uses.
    """
    chance = random.Random(f"{family} {seed}")
    nodes = chance.randint(8, 14)
    sizes = [chance.randint(1, 4) for _ in range(nodes)]
    plan = [chance.randrange(size) for size in sizes]
    costs = [[chance.randrange(500) for _ in range(size)] for size in sizes]
    usages = [[chance.randrange(100) for _ in range(size)] for size in sizes]
    spans = [sorted(chance.choices(range(nodes), k=2)) for _ in range(nodes)]
    edges = list(_edges(family, nodes, chance))
    is_planted = bool(seed % 4)
    tables = [_table(chance, sizes[v], sizes[w], (plan[v], plan[w]) if is_planted else None) for v, w in edges]
    instance = Instance(
        f"{family} {seed}", np.array(spans), tuple(map(np.array, costs)), tuple(map(np.array, usages)),
        np.array(edges, dtype=np.int64).reshape(-1, 2), tuple(map(np.array, tables)), 0,
    )  # fmt: skip
    used, most = (evaluated(instance, each)[1] for each in (plan, [row.index(max(row)) for row in usages]))
    share = 0.0 if family == "tight" else chance.uniform(0, 0.5)
    return replace(instance, usage_limit=int(used + share * (most - used)))


def evaluated(instance: Instance, choices: Sequence[int]) -> tuple[int, int]:
    """Cost and peak, by plain Python; a forbidden choice makes the cost 10^18 or more."""
    cost = sum(int(row[k]) for row, k in zip(instance.costs, choices, strict=True))
    for (v, w), table in zip(instance.edges.tolist(), instance.tables, strict=True):
        cost += int(table[choices[v]][choices[w]])
    spans = instance.intervals.tolist()
    used = [int(row[k]) for row, k in zip(instance.usages, choices, strict=True)]
    times = {start for start, _ in spans}
    return cost, max(sum(u for u, (a, b) in zip(used, spans, strict=True) if a <= t < b) for t in times)


def cp_sat_optimum(instance: Instance) -> int | None:
    """The least cost by CP-SAT with element tables; None where there is no plan."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [[model.new_bool_var("") for _ in row] for row in instance.costs]
    terms = []
    for literals, row in zip(taken, instance.costs, strict=True):
        model.add_exactly_one(literals)
        for literal, cost in zip(literals, row.tolist(), strict=True):
            if cost >= _SHUT:
                model.add(literal == 0)
            else:
                terms.append(cost * literal)
    for (v, w), table in zip(instance.edges.tolist(), instance.tables, strict=True):
        for i, row in enumerate(table.tolist()):
            for j, cost in enumerate(row):
                if cost >= _SHUT:
                    model.add_bool_or(taken[v][i].negated(), taken[w][j].negated())
                elif cost:
                    both = model.new_bool_var("")
                    model.add_bool_or(taken[v][i].negated(), taken[w][j].negated(), both)
                    terms.append(cost * both)
    for time in {start for start, _ in instance.intervals.tolist()}:
        uses = [
            int(use) * literal
            for literals, row, (a, b) in zip(taken, instance.usages, instance.intervals.tolist(), strict=True)
            for literal, use in zip(literals, row, strict=True)
            if a <= time < b
        ]
        model.add(sum(uses) <= instance.usage_limit)
    model.minimize(sum(terms))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None
