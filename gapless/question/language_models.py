"""Fields of commands that measure or run language models, said once, and what their help says of models."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from gapless.question.fields import Choice, Field, Text, Whole
from gapless.question.question import Asked, asked, said

__all__ = ["DTYPE", "DTYPES", "MODEL", "MODELS_HELP", "MODEL_HELP", "PLACE", "OnSequences"]

MODELS_HELP = """\
MODEL has the attention of Llama, Qwen or Mistral, its grouped queries too, of OPT, or of GPT-2. hf:tiny-llama,
hf:tiny-llama-gqa, hf:tiny-gpt2, hf:tiny-opt and hf:small-llama have random weights; a folder is what
save_pretrained of transformers writes. Nothing is downloaded. Without a tokenizer in the folder, a token is a byte.
"""
MODEL_HELP = "hf:tiny-llama, -llama-gqa, -gpt2, -opt, hf:small-llama, or the folder of a saved model"
MODEL = Field("model", Text(), MODEL_HELP, is_required=True, metavar="NAME|FOLDER", extra="hf")
PLACE = Field("device", Text(), "where the model runs: cpu, cuda, cuda:N", "cpu", metavar="NAME")
DTYPES = ("float32", "bfloat16", "float16")
DTYPE = Field("dtype", Choice(DTYPES), f"numbers of weights and cache: {', '.join(DTYPES)}", DTYPES[0])


@dataclass(frozen=True, repr=False)
class OnSequences(Asked):
    """What is asked of a language model on the sequences of a text, and where it runs."""

    _: KW_ONLY
    sequence: int = asked(Whole(2, 10**6), "tokens of a sequence", 128, metavar="N")
    sequences: int = asked(Whole(1, 10**6), "sequences at most", 16, metavar="N")
    device: str = said(PLACE)
    dtype: str = said(DTYPE)
