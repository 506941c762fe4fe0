"""MSCCL++ execution plans: the plan, its reader and writer, the rules, an executor's model, and the lowering to it."""

from planwright.io.mscclpp.check import Verdict, judge
from planwright.io.mscclpp.lower import lower
from planwright.io.mscclpp.program import Plan
from planwright.io.mscclpp.read import is_plan, parse_plan, read_plan
from planwright.io.mscclpp.write import plan_text, write_plan

__all__ = ["Plan", "Verdict", "is_plan", "judge", "lower", "parse_plan", "plan_text", "read_plan", "write_plan"]
