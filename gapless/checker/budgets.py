"""Budgets: what the implementations that run spend in sum, of what neither time nor memory measures."""

from __future__ import annotations

import math

from gapless.checker.program import Program
from gapless.checker.report import Findings, Rule, Violation
from gapless.model.knapsack import is_within

__all__ = ["check_budgets"]


def check_budgets(program: Program, findings: Findings) -> tuple[float, ...]:
    """No budget of the graph is exceeded; what is spent of each, in the graph's order."""
    graph, schedule = program.graph, program.schedule
    if not graph.budgets:
        return ()
    amounts: list[list[float]] = [[] for _ in graph.budgets]
    rows = program.numbers[program.computes]
    for op, implementation in zip(schedule.op[rows].tolist(), schedule.implementation[rows].tolist(), strict=True):
        for budget, amount in graph.ops[op].implementations[implementation].spends:
            amounts[budget].append(amount)
    spent = tuple(math.fsum(each) for each in amounts)
    over = [k for k, budget in enumerate(graph.budgets) if not is_within(spent[k], budget.limit)]

    def explain(k: int) -> Violation:
        budget = graph.budgets[over[k]]
        text = f"budget {budget.name!r}: {spent[over[k]]:.9g} is spent of {budget.limit:.9g}"
        return program.violation(Rule.BUDGET_EXCEEDED, -1, -1, text)

    findings.add(Rule.BUDGET_EXCEEDED, len(over), explain)
    return spent
