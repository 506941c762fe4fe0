"""Language models by name, and texts as their tokens. Needs the extra `hf`.

`hf:tiny-llama`, `hf:tiny-llama-gqa`, `hf:tiny-gpt2`, `hf:tiny-opt`, and `hf:small-llama` for times, have random
weights, the same for a seed; a folder is what `save_pretrained` has written. Nothing is downloaded.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gapless.errors import InputError
from gapless.installation.extras import missing_extra
from gapless.io.record import suggestion
from gapless.io.text_file import load_text

__all__ = [
    "Attention", "Cache", "DynamicLayer", "LanguageModel", "cache_argument", "cached_logits", "check_length",
    "cross_entropy",
    "eager_mask", "load_language_model", "mean_loss", "sequences_of", "transformers",
]  # fmt: skip

try:
    import torch  # transformers loads without it, and then has no models
    import transformers
    from transformers.cache_utils import Cache, DynamicLayer
    from transformers.masking_utils import eager_mask
except ImportError as error:
    raise missing_extra("a language model", error.name or "transformers", "hf") from None

from gapless.torch.devices import KINDS, gpu_count  # isort: skip  (after the lines that name the extra)

_PREFIX = "hf:"
_BYTES = 256
"""Without a tokenizer, a token is a byte."""

_TINY = {"vocab_size": _BYTES, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
_LLAMA = {
    **_TINY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8,
    "max_position_embeddings": 2048,
}  # fmt: skip
_SMALL = {
    **_TINY, "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "max_position_embeddings": 8192,
}  # fmt: skip
_GPT2 = {**_TINY, "n_embd": 64, "n_layer": 2, "n_head": 8, "n_positions": 2048}
_INITIAL_STD = 0.2
"""Of random weights: with the usual 0.02 every head attends to all tokens alike."""
_OPT = {
    **_TINY, "hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 128, "num_hidden_layers": 2,
    "num_attention_heads": 8, "max_position_embeddings": 2048, "init_std": _INITIAL_STD,
}  # fmt: skip
_OWN: dict[str, tuple[str, Mapping[str, float | None]]] = {
    "tiny-llama": ("LlamaConfig", {**_LLAMA, "num_key_value_heads": 8}),
    "tiny-llama-gqa": ("LlamaConfig", {**_LLAMA, "num_key_value_heads": 4}),
    "tiny-gpt2": ("GPT2Config", _GPT2),
    "small-llama": ("LlamaConfig", _SMALL),
    "tiny-opt": ("OPTConfig", _OPT),
}


@dataclass(frozen=True)
class Attention:
    """The attention of one layer. `module`: what calls the attention function; `is_fused`: whether queries, keys and
    values come from one matrix, as in GPT-2. `output`: float, (heads, dimension, model): what heads add to the output.
    """

    module: torch.nn.Module
    heads: int
    key_heads: int
    dimension: int
    is_fused: bool

    @property
    def output(self) -> torch.Tensor:
        """The rows of the output matrix of each head."""
        if self.is_fused:
            return self.module.c_proj.weight.view(self.heads, self.dimension, -1)
        last = self.module.out_proj if hasattr(self.module, "out_proj") else self.module.o_proj
        return last.weight.T.reshape(self.heads, self.dimension, -1)


class _Tokenizer(Protocol):
    """What a tokenizer of transformers is."""

    def __call__(self, text: str, *, return_tensors: str, verbose: bool) -> Mapping[str, torch.Tensor]:
        """`input_ids`: int64, shape (1, tokens)."""


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model of `transformers`, the attention of its layers in order, and its tokenizer, if any."""

    name: str
    model: torch.nn.Module
    layers: tuple[Attention, ...]
    tokenizer: _Tokenizer | None = None

    def tokens(self, path: str | Path) -> torch.Tensor:
        """The tokens of a text file on the model's device, int64, shape (count,). Raises `InputError`."""
        text = load_text(path)
        if self.tokenizer is not None:
            found = self.tokenizer(text, return_tensors="pt", verbose=False)["input_ids"][0]
        else:
            found = torch.tensor(list(text.encode()), dtype=torch.int64)
        return found.to(self.device)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        found: torch.device = self.model.device
        return found


def load_language_model(text: str, seed: int = 0, device: str = "cpu", dtype: str = "float32") -> LanguageModel:
    """A model by name or folder, ready for inference on a device in one of `DTYPES`, with `eager` attention.

    Raises `InputError` for a name that is none, for a model whose heads aren't those of Llama, OPT or GPT-2, and for a
    device that isn't here.
    """
    place = _checked_device(device)
    found = _loaded(text, seed)
    found.model.to(place, getattr(torch, dtype))
    return found


def _checked_device(text: str) -> torch.device:
    try:
        place = torch.device(text)
    except RuntimeError:
        place = None
    if place is None or place.type not in KINDS:
        raise InputError(f"device: must be cpu, cuda or cuda:N, got {text!r}")
    if place.type != "cpu" and (place.index or 0) >= gpu_count():
        raise InputError(f"device: {text} isn't here: PyTorch sees {gpu_count()} CUDA devices; take cpu")
    return place


def _loaded(text: str, seed: int) -> LanguageModel:
    name = text.removeprefix(_PREFIX)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if name in _OWN:
        kind, values = _OWN[name]
        config = getattr(transformers, kind)(**values, initializer_range=_INITIAL_STD, attn_implementation="eager")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = transformers.AutoModelForCausalLM.from_config(config)
        return _checked(text, model, None)
    if not os.path.isdir(name):
        hint = suggestion(name, _OWN)
        rule = (
            f"model: must be {', '.join(_PREFIX + own for own in _OWN)}, or the folder of a saved model, got {text!r}"
        )
        raise InputError(f"{rule}; {hint}" if hint else rule)
    return _saved(text, name)


def _saved(text: str, folder: str) -> LanguageModel:
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, attn_implementation="eager"
        )
        has_tokenizer = any(
            os.path.exists(os.path.join(folder, f"tokenizer{end}")) for end in (".json", "_config.json")
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True) if has_tokenizer else None
    except Exception as error:  # of the library's own readers, which raise almost anything
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"model: {folder} is not readable as a saved model: {first}") from None
    if tokenizer is None and model.config.vocab_size < _BYTES:
        rule = f"must have a vocabulary of {_BYTES} bytes at least, or a tokenizer"
        raise InputError(f"model: {folder} {rule}, got {model.config.vocab_size} tokens")
    return _checked(text, model, tokenizer)


def _checked(name: str, model: torch.nn.Module, tokenizer: _Tokenizer | None) -> LanguageModel:
    config = model.config
    found = []
    for module in model.modules():
        if hasattr(module, "layer_idx") and (hasattr(module, "q_proj") or hasattr(module, "c_attn")):
            heads, is_fused = int(config.num_attention_heads), hasattr(module, "c_attn")
            key_heads = heads if is_fused else int(getattr(config, "num_key_value_heads", None) or heads)
            found.append(Attention(module, heads, key_heads, int(module.head_dim), is_fused))
    if len(found) != config.num_hidden_layers or [each.module.layer_idx for each in found] != list(range(len(found))):
        kind = config.model_type
        raise InputError(
            f"model: {name} is of the kind {kind}; heads of Llama, OPT, GPT-2 and the like can be shared alone"
        )
    return LanguageModel(name, model.eval(), tuple(found), tokenizer)


def cached_logits(model: torch.nn.Module, tokens: torch.Tensor, cache: Cache, **options: object) -> torch.Tensor:
    """Logits of tokens that follow what a cache has, (requests, tokens, vocabulary); the cache has these too then."""
    logits: torch.Tensor = model(tokens, use_cache=True, **{cache_argument(model): cache}, **options).logits
    return logits


def cache_argument(model: torch.nn.Module) -> str:
    """The name of the argument that takes a cache, of a model's calls and of `generate`."""
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"  # as transformers calls it before 5.24


def check_length(found: LanguageModel, prompt: int, new_tokens: int) -> None:
    """Raises `InputError` where a model has no place for so many tokens."""
    most = getattr(found.model.config, "max_position_embeddings", None)
    if most is not None and prompt + new_tokens > most:
        raise InputError(f"new_tokens: prompt and new tokens must be <= {most}, got {prompt} + {new_tokens}")


def sequences_of(tokens: torch.Tensor, length: int, most: int, where: str) -> torch.Tensor:
    """The first tokens as sequences, int64, shape (sequences, length): at most so many.

    Raises `InputError` where there aren't enough for one.
    """
    count = min(len(tokens) // length, most)
    if not count:
        raise InputError(f"{where}: must have {length} tokens at least, one sequence, got {len(tokens)}")
    return tokens[: count * length].view(count, length)


def mean_loss(model: torch.nn.Module, sequences: torch.Tensor, batch: int = 8) -> float:
    """The mean cross entropy of the next token over all sequences, in nats."""
    total, count = 0.0, 0
    with torch.no_grad():
        for first in range(0, len(sequences), batch):
            part = sequences[first : first + batch]
            logits = model(part, use_cache=False).logits[:, :-1]
            total, count = total + cross_entropy(logits, part[:, 1:]) * len(part), count + len(part)
    return total / count


def cross_entropy(logits: torch.Tensor, following: torch.Tensor) -> float:
    """The mean of tokens, (sequences, tokens), in nats, by logits of shape (sequences, tokens, vocabulary)."""
    flat = logits.reshape(-1, logits.shape[-1]).float()
    return float(torch.nn.functional.cross_entropy(flat, following.reshape(-1)))
