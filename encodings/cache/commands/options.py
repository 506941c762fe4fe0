"""The cache's commands beside `solve`: what they take, and their help."""

from __future__ import annotations

from gapless.answering import asking
from gapless.encodings.cache.commands import profile, run
from gapless.encodings.cache.question import ProfileQuestion, RunQuestion
from gapless.lazy import lazy
from gapless.question import fields_of
from gapless.question.language_models import MODELS_HELP
from gapless.system import Command

__all__ = ["PROFILE", "RUNS"]

_PROFILE_HELP = f"""\
{MODELS_HELP}
Measures what each mode of one layer spoils, while all others are in full: keys or values in few bits, a window of
tokens, keys that heads share. It takes the divergence of the next token's distribution from the full cache's, and the
rise of the loss. A layer's error is divided among its heads as each spoils in 3 bits alone, or, cheaper, as it changes
the layer's output. Take sequences as long as those that will be cached: what a window spoils depends on it.

example:
  gapless profile cache --model hf:tiny-llama --calibration text.txt -o cache.npz
"""
_RUN_HELP = f"""\
{MODELS_HELP}
Generates with the full cache and with the plan's, a batch of prompts of unequal lengths, and measures what the plan
spoils on the text. A text that wasn't measured for the profile says how good the plan is.

exit codes: 0 the cache has the plan's bytes, and in float32 its logits are those of one pass over all tokens; 2 bad
input; 5 something differs

example:
  gapless run cache --model hf:tiny-llama --plan plan.json --text text.txt
"""

PROFILE = Command(
    "cache", "what modes of a language model's cache of keys and values spoil", fields_of(ProfileQuestion),
    asking(ProfileQuestion, lazy(lambda: profile.profile_cache)), _PROFILE_HELP,
)  # fmt: skip

_RUN = Command(
    "cache", "a plan in a language model, beside the full cache", fields_of(RunQuestion),
    asking(RunQuestion, lazy(lambda: run.execute)), _RUN_HELP,
)  # fmt: skip

RUNS = (_RUN,)
