"""CHAI as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.encodings.chai import head_map, parameters, problem, solve, view
from gapless.encodings.chai.commands import profile, requests, run
from gapless.encodings.chai.question import ProfileQuestion, Question, RequestsQuestion, RunQuestion
from gapless.lazy import lazy
from gapless.question import fields_of
from gapless.system import Command, System, asking

__all__ = ["SYSTEM"]

_SWAPS_HELP = """\
--swaps lowers the loss of the model on a text, by exchanging kept heads one for one; the error may rise. It needs the
extra `hf`.
"""


def _remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """Why there is no plan, where there is none; what swaps have gained."""
    swaps, most = details.get("swaps"), details.get("most_saving")
    if "kept" not in details and isinstance(most, float):
        return (f"keys of one head in each layer save {most:.1%} of the cache: that is the most",)
    if isinstance(swaps, Mapping) and {"loss_before", "loss_after", "made", "tried"} <= set(swaps):
        change = f"loss {swaps['loss_before']:.4f} -> {swaps['loss_after']:.4f}"
        return (f"swaps: {change}; {swaps['made']} of {swaps['tried']} that were tried were made",)
    return ()


_MODELS_HELP = """\
MODEL has the attention of Llama, its grouped queries too, of OPT, or of GPT-2. hf:tiny-llama, hf:tiny-llama-gqa,
hf:tiny-gpt2 and hf:tiny-opt have random weights; a folder is what save_pretrained of transformers writes. Nothing is
downloaded. Without a tokenizer in the folder, a token is a byte.
"""
_PROFILE_HELP = f"""\
{_MODELS_HELP}
Measures what it costs when a head takes over another one's attention: by how much the attention changes, and by how
much the layer's output. Both are squared distances, means over the text's tokens. It also measures by how much the loss
rises when one layer alone keeps the keys of some heads, the best by output. Counts of heads are all up to 8 key heads,
else 1, 2, 3, 4, 6, 8, 12 ... When it is stopped, what is measured is written, once one head in each layer is.

example:
  gapless profile heads --model hf:tiny-llama --calibration text.txt -o heads.npz
"""
_RUN_HELP = f"""\
{_MODELS_HELP}
Generates with the full cache, with the plan's, and with a plain model whose rows of queries and keys are copies of the
representatives'. exit codes: 0 the last two have equal logits, and the cache has the plan's bytes, 2 bad input, 5
something differs

example:
  gapless run chai --model hf:tiny-llama --plan plan.json --text text.txt
"""

_REQUESTS_HELP = f"""\
{_MODELS_HELP}
CHAI as published: each request is begun with all heads. From the scores of its first tokens, k-means clusters the heads
of each layer, as many clusters as the plan keeps key heads. The cache drops the others' keys. Beside it: the full
cache, the plan's map for all requests, and the least errors that the first and all later tokens allow.

exit codes: 0 logits are those of all heads with replaced attention, caches have the plan's bytes, no error is below the
proven least, 2 bad input, 5 something differs

example:
  gapless run chai-requests --model hf:tiny-llama --plan plan.json --text text.txt
"""

_PROFILE = Command(
    "heads", "how far the attention heads of a language model are from each other", fields_of(ProfileQuestion),
    asking(ProfileQuestion, lazy(lambda: profile.profile_heads)), _PROFILE_HELP,
)  # fmt: skip
_RUN = Command(
    "chai", "a plan in a language model, beside the full cache", fields_of(RunQuestion),
    asking(RunQuestion, lazy(lambda: run.execute)), _RUN_HELP,
)  # fmt: skip
_REQUESTS = Command(
    "chai-requests", "heads clustered for each request after its first tokens, beside a plan and the optimum",
    fields_of(RequestsQuestion), asking(RequestsQuestion, lazy(lambda: requests.execute_requests)), _REQUESTS_HELP,
)  # fmt: skip

SYSTEM = System(
    name="chai",
    what="which attention heads share one head's keys",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve chai --profile synthetic:layers=32,heads=32 --kv-saving 0.214 -o plan.json
  gapless solve chai --profile heads.npz --kv-saving 0.3 --distance scores -o plan.json
""",
    notes=_SWAPS_HELP,
    summary=("method", "saved", "kept_heads", "cache_bytes", "full_step_s"),
    remarks=_remarks,
    lighter="fewer layers",
    view=lazy(lambda: view.render),
    headline=("{profile}: heads that share attention", "saving {kv_saving} of the cache"),
    pictures=("front", "heads", "gantt"),
    drawers={"front": lazy(lambda: view.draw_front), "heads": lazy(lambda: view.draw_heads)},
    device_names=lambda plan: (plan.schedule.topology.name,),
    runs=(_RUN, _REQUESTS),
    profiles=(_PROFILE,),
    pinned=lazy(lambda: solve.pinned),
    cost=lazy(lambda: solve.cost),
    decision=lambda: head_map.HeadDecision,
    package="gapless.encodings.chai",
)
