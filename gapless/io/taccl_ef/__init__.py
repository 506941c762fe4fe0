"""TACCL-EF (MSCCL XML): the program, its reader and writer, the checks, an interpreter, and the lowering to it."""

from gapless.io.taccl_ef.check import Verdict, judge
from gapless.io.taccl_ef.execute import Outcome, run
from gapless.io.taccl_ef.lower import PLACEMENTS, LimitError, LoweringOptions, lower, lowered
from gapless.io.taccl_ef.program import (
    MAX_SCRATCH_BYTES,
    RUNTIMES,
    Gpu,
    Problem,
    Program,
    Runtime,
    Step,
    ThreadBlock,
    runtime_for,
    served_placement,
)
from gapless.io.taccl_ef.selection import Call, Candidate, Selection, select
from gapless.io.taccl_ef.verify import verify
from gapless.io.taccl_ef.xml_file import parse_xml, read_program, write_program, xml_text

__all__ = [
    "MAX_SCRATCH_BYTES", "PLACEMENTS", "RUNTIMES", "Call", "Candidate", "Gpu", "LimitError", "LoweringOptions",
    "Outcome", "Problem", "Program", "Runtime", "Selection", "Step", "ThreadBlock", "Verdict", "judge", "lower",
    "lowered", "parse_xml", "read_program", "run", "runtime_for", "select", "served_placement", "verify",
    "write_program", "xml_text",
]  # fmt: skip
