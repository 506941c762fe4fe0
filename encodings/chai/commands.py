"""The commands of CHAI: a run in a language model, a profile of its heads, with their options and help."""

from __future__ import annotations

from gapless.encodings.chai import execution
from gapless.encodings.chai.question import MODEL_HELP
from gapless.lazy import lazy
from gapless.question.fields import Field, Text, Whole
from gapless.system import Command

__all__ = ["PROFILE", "RUN"]

_MODEL = Field(
    "model", Text(), MODEL_HELP, is_required=True,
    metavar="NAME|FOLDER", extra="hf",
)  # fmt: skip
_SEQUENCE = Field("sequence", Whole(2, 10**6), "tokens of a sequence", 128, metavar="N")
_SEQUENCES = Field("sequences", Whole(1, 10**6), "sequences at most", 16, metavar="N")

_PROFILE = (
    _MODEL,
    Field("calibration", Text(), "a text", is_required=True, metavar="FILE"),
    _SEQUENCE,
    _SEQUENCES,
    Field(
        "loss_sequences",
        Whole(0, 10**6),
        "sequences at most on which the rise of the loss is measured, by layer and count of kept keys; 0 for none",
        8,
        metavar="N",
    ),
    Field("output", Text(), "the profile to write", is_required=True, metavar="FILE", short="-o"),
)

_RUN = (
    _MODEL,
    Field("plan", Text(), "the plan", is_required=True, metavar="FILE"),
    Field("text", Text(), "a text: its beginning is the prompt, and the loss is measured on it", is_required=True,
          metavar="FILE"),
    Field("prompt", Whole(1, 10**6), "tokens of the prompt", 64, metavar="N"),
    Field("new_tokens", Whole(2, 10**6), "tokens that are generated", 32, metavar="N"),
    _SEQUENCE,
    _SEQUENCES,
)  # fmt: skip

_MODELS_HELP = """\
MODEL has the attention of Llama, its grouped queries too, or of GPT-2. hf:tiny-llama, hf:tiny-llama-gqa and
hf:tiny-gpt2 have random weights; a folder is what save_pretrained of transformers writes. Nothing is downloaded.
Without a tokenizer in the folder, a token is a byte.
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

PROFILE = Command(
    "heads", "how far the attention heads of a language model are from each other", _PROFILE,
    lazy(lambda: execution.profile_heads), _PROFILE_HELP,
)  # fmt: skip
RUN = Command(
    "chai", "a plan in a language model, beside the full cache", _RUN,
    lazy(lambda: execution.execute), _RUN_HELP,
)  # fmt: skip
