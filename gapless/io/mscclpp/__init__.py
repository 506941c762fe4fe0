"""MSCCL++ execution plans: the plan, its reader and writer, the rules, an executor's model, and the lowering to it."""

from gapless.io.mscclpp.execute import Verdict, judge
from gapless.io.mscclpp.json_file import is_plan, parse_plan, plan_text, read_plan, write_plan
from gapless.io.mscclpp.lower import lower
from gapless.io.mscclpp.program import Plan

__all__ = ["Plan", "Verdict", "is_plan", "judge", "lower", "parse_plan", "plan_text", "read_plan", "write_plan"]
