"""TACCL-EF (MSCCL XML): the program, its reader and writer, the checks, an interpreter, and the lowering to it."""

from gapless.io.taccl_ef.check import Verdict, judge
from gapless.io.taccl_ef.interpret import Outcome, run
from gapless.io.taccl_ef.lower import PLACEMENTS, lower
from gapless.io.taccl_ef.program import RUNTIMES, Gpu, Problem, Program, Runtime, Step, ThreadBlock
from gapless.io.taccl_ef.read import parse_xml, read_program
from gapless.io.taccl_ef.verify import verify
from gapless.io.taccl_ef.write import write_program, xml_text

__all__ = [
    "PLACEMENTS",
    "RUNTIMES",
    "Gpu",
    "Outcome",
    "Problem",
    "Program",
    "Runtime",
    "Step",
    "ThreadBlock",
    "Verdict",
    "judge",
    "lower",
    "parse_xml",
    "read_program",
    "run",
    "verify",
    "write_program",
    "xml_text",
]
