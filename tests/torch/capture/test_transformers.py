"""Models of the `transformers` package as they come: their default attention, with and without masks.

Without torch or transformers these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")
pytest.importorskip("transformers", reason="transformers is not installed; pip install transformers")

import torch
import transformers
from torch_steps import keep_all, left_by_eager, left_by_plan, random_plan

from gapless.encodings.monet import Problem
from gapless.options import SolveOptions
from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.run import plan, run

CLOSE = 1e-6
"""The most that a step may be off where eager saw that a mask hides nothing, and ran another kernel without it."""


def llama() -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=64, max_position_embeddings=16,
        )
    )  # fmt: skip


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=32, n_layer=2, n_head=2, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0
        )
    )


def bert() -> Any:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=64,
            max_position_embeddings=16,
        )
    )  # fmt: skip


def t5() -> Any:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=64, decoder_start_token_id=0
        )
    )


KINDS = (llama, gpt2, bert, t5)
MASKS = ("none", "full", "padded")


def case(make: Callable[[], Any], mask: str) -> tuple[Any, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    words = torch.randint(3, 64, (2, 16))
    inputs = {"input_ids": words, "labels": words}
    if mask != "none":
        inputs["attention_mask"] = torch.ones_like(words)
        inputs["attention_mask"][1, 12:] = int(mask == "full")
    if mask != "none" and make is t5:
        inputs["decoder_attention_mask"] = inputs["attention_mask"]
    return make().train(), inputs


def loss(output: Any) -> Any:
    return output.loss


@pytest.mark.thorough(but=["gpt2-padded"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("make", KINDS)
def test_model_as_it_comes_equals_eager(make: Callable[[], Any], mask: str) -> None:
    model, inputs = case(make, mask)
    step = profile(capture(model, inputs, loss), repeats=1)
    expected = left_by_eager(model, lambda its: its(**inputs).loss)
    for planned in (keep_all(step), random_plan(step, 1)):
        found = left_by_plan(model, planned, **inputs)
        assert found.peak_bytes <= planned.peak_bytes
        if (make, mask) != (llama, "full"):
            assert found.differs_from(expected) == []
        train = run(planned, model, tolerance=CLOSE, report=lambda _: None)
        train(**inputs)
        assert train.difference is not None
        if (make, mask) != (llama, "full"):  # whose sums a processor may add in another order
            assert train.difference.is_equal
        model.zero_grad()


@pytest.mark.thorough("t5", "llama", "gpt2")
@pytest.mark.parametrize("make", KINDS)
def test_step_of_a_full_mask_is_right_for_a_padded_one(make: Callable[[], Any]) -> None:
    """What a model skips where a mask hides nothing must not be traced into the step."""
    model, inputs = case(make, "full")
    planned = keep_all(capture(model, inputs, loss))
    _, padded = case(make, "padded")
    found = left_by_plan(model, planned, **padded)
    assert found.differs_from(left_by_eager(model, lambda its: its(**padded).loss)) == []


SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 16, "use_cache": False,
}  # fmt: skip


def whisper() -> Any:
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=64, num_mel_bins=8, max_source_positions=16,
            max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
            use_cache=False,
        )
    )  # fmt: skip


UNCACHED: dict[str, tuple[Callable[[], Any], bool]] = {
    "gpt2": (lambda: uncached(gpt2()), True),
    "llama": (lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)), True),
    "qwen3": (lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SMALL, head_dim=8)), True),
    "gemma2": (
        lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SMALL, head_dim=8, sliding_window=8)), True
    ),
    "mixtral": (
        lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**SMALL, num_local_experts=4)), False
    ),
    "whisper": (whisper, True),
}  # fmt: skip
"""Models that keep no keys and values, and whether a step has eager's bits: Mixtral is traced as it is compiled, with a
mask that eager leaves out.
"""


def uncached(model: Any) -> Any:
    model.config.use_cache = False
    return model


@pytest.mark.thorough(but=("gpt2", "llama"))
@pytest.mark.parametrize("kind", UNCACHED)
def test_model_without_mask_and_cache_is_captured(kind: str) -> None:
    torch.manual_seed(0)
    make, is_equal = UNCACHED[kind]
    model, words = make().train(), torch.randint(3, 64, (2, 16))
    inputs = {"input_ids": words, "labels": words}
    if kind == "whisper":
        inputs = {"input_features": torch.randn(2, 8, 32), "labels": words}
    train = run(keep_all(capture(model, inputs, loss)), model, tolerance=CLOSE, report=lambda _: None)
    for _ in range(2):
        train(**inputs)
    assert train.difference is not None
    assert train.difference.is_equal or not is_equal


def test_flags_of_the_compiler_are_as_before_after_a_capture() -> None:
    model, inputs = case(llama, "full")
    capture(model, inputs, loss)
    assert not torch.compiler.is_compiling()
    assert not torch.compiler.is_exporting()


@pytest.mark.thorough("t5", "bert", "llama")
@pytest.mark.parametrize("make", KINDS)
def test_solved_plan_keeps_to_its_budget(make: Callable[[], Any]) -> None:
    model, inputs = case(make, "padded")
    step = profile(capture(model, inputs, loss), repeats=1)
    expected = left_by_eager(model, lambda its: its(**inputs).loss)
    budget_bytes = int(0.95 * expected.peak_bytes)
    options = SolveOptions(gap=1.0, time_limit_s=20.0, threads=1)
    found = left_by_plan(model, plan(step, Problem(step.graph, budget_bytes), options), **inputs)
    assert found.differs_from(expected) == []
    assert found.peak_bytes <= budget_bytes
