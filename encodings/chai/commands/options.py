"""CHAI's commands beside `solve`: what they take, and their help."""

from __future__ import annotations

from gapless.answering import asking
from gapless.encodings.chai.commands import latency, profile, requests, run
from gapless.encodings.chai.question import LatencyQuestion, ProfileQuestion, RequestsQuestion, RunQuestion
from gapless.lazy import lazy
from gapless.question import fields_of
from gapless.question.language_models import MODELS_HELP
from gapless.system import Command

__all__ = ["PROFILE", "RUNS"]

_PROFILE_HELP = f"""\
{MODELS_HELP}
Measures what it costs when a head takes over another one's attention: by how much the attention changes, and by how
much the layer's output. Both are squared distances, means over the text's tokens. It also measures by how much the loss
rises when one layer alone keeps the keys of some heads, the best by output. Counts of heads are all up to 8 key heads,
else 1, 2, 3, 4, 6, 8, 12 ... When it is stopped, what is measured is written, once one head in each layer is.

example:
  gapless profile heads --model hf:tiny-llama --calibration text.txt -o heads.npz
"""
_RUN_HELP = f"""\
{MODELS_HELP}
Generates with the full cache, with the plan's, and with a plain model whose rows of queries and keys are copies of the
representatives'. exit codes: 0 the last two have equal logits, and the cache has the plan's bytes, 2 bad input, 5
something differs

example:
  gapless run chai --model hf:tiny-llama --plan plan.json --text text.txt
"""

_REQUESTS_HELP = f"""\
{MODELS_HELP}
CHAI as published: each request is begun with all heads. From the scores of its first tokens, k-means clusters the heads
of each layer, as many clusters as the plan keeps key heads. The cache drops the others' keys. Beside it: the full
cache, the plan's map for all requests, and the least errors that the first and all later tokens allow.

exit codes: 0 logits are those of all heads with replaced attention, caches have the plan's bytes, no error is below the
proven least, 2 bad input, 5 something differs

example:
  gapless run chai-requests --model hf:tiny-llama --plan plan.json --text text.txt
"""

_LATENCY_HELP = f"""\
{MODELS_HELP}
Prompts are drawn tokens. The full model attends as transformers does by default. Requests are clustered in their time
to the first token, which counts it. A round that doesn't count comes first.

example:
  gapless run chai-latency --model hf:small-llama --plan plan.json --lengths 128,1024,4096 --dtypes float32,bfloat16
"""

PROFILE = Command(
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
_LATENCY = Command(
    "chai-latency", "times to the first and to the next token, by length, batch and precision",
    fields_of(LatencyQuestion), asking(LatencyQuestion, lazy(lambda: latency.execute_latency)), _LATENCY_HELP,
)  # fmt: skip

RUNS = (_RUN, _REQUESTS, _LATENCY)
