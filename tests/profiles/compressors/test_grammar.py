"""One grammar: every spelling of every compressor, in every place that takes one, is taken or refused with a reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.cupcake.commands.what_if import what_if
from gapless.encodings.cupcake.problem import problem
from gapless.errors import InputError
from gapless.profiles.compression.trace import CompressionTrace
from gapless.profiles.compressors import grammar
from gapless.profiles.compressors.grammar import compressor_names, method_of, named_compressor, sent_bytes, sent_names
from gapless.profiles.gradients.cost_functions import FREE
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.named import load_fusion_profile

SPELLINGS = {
    "none": ("none", "plain"), "fp16": ("fp16", "float16"), "bf16": ("bf16", "bfloat16"),
    "rand-k:0.01": ("rand-k", "randk", "rand-k:0.01"), "topk:0.01": ("topk", "top-k", "topk:0.01", "top 1%"),
    "rand-k-gathered:0.01": ("rand-k-gathered", "rand-k-gathered:.01"), "ms-topk:0.01": ("ms-topk", "mstopk:1e-2"),
    "dgc:0.01": ("dgc", "dgc:0.01"), "ef-signsgd": ("ef-signsgd", "efsignsgd"), "onebit": ("onebit",),
    "powersgd:4": ("powersgd", "powersgd:4", "rank 4"), "topk:0.25": ("topk:0.25", "top 25%"),
    "powersgd:16": ("powersgd:16", "rank 16"), "signsgd": ("signsgd", "sign-sgd"), "qsgd:2": ("qsgd", "qsgd:2"),
    "dgc:0.001:momentum=0.5:warmup=40": ("dgc:0.001:momentum=0.5:warmup=40", "dgc:1e-3:warmup=40:momentum=.5:clip=0"),
    "terngrad": ("terngrad",), "atomo:4": ("atomo", "atomo:4"),
}  # fmt: skip
"""By what it is, each way to write it."""
NO_NAMES = ("rank", "rank 0", "top 0%", "topk:2", "topk:", "powersgd:0", "powersgd:1.5", "fp16:2", "gzip", "FP16")

every = st.sampled_from([spelling for each in SPELLINGS.values() for spelling in each])
SHAPES = ((40, 30), (7,), ())


def priced(spelling: str) -> object:
    return named_compressor(spelling)


def planned(spelling: str) -> object:
    return problem("resnet50", modes=["plain", spelling], ranks=8, bandwidth="10Gbps")


def planned_alone(spelling: str) -> object:
    return problem("resnet50", compressor=spelling, ranks=8, bandwidth="10Gbps")


def asked_what_if(spelling: str) -> object:
    return what_if("resnet50", figure="bandwidth", compressor=spelling, ranks=[8])


def trace_of(mode: str) -> CompressionTrace:
    return CompressionTrace(
        "t", ("a",), ((40, 30),), (mode,), np.array([1]), np.ones(1), np.ones((1, 1, 1)), np.ones((1, 1)),
        np.ones((1, 1)), 0.0, np.zeros(1), np.zeros((1, 1)),
    )  # fmt: skip


def traced(spelling: str) -> object:
    return trace_of(spelling).sent_bytes


def sent(spelling: str) -> object:
    return [sent_bytes(spelling, shape) for shape in SHAPES]


def hooked(spelling: str) -> object:
    pytest.importorskip("torch")
    from gapless.torch.ddp.hook import HookState

    return HookState(spelling)


def between_stages(spelling: str) -> object:
    torch = pytest.importorskip("torch")
    from gapless.torch.compression import HopCompressor

    compressor, gradient = HopCompressor(spelling), torch.arange(1200.0).view(40, 30)
    return compressor.decode(compressor.encode(gradient), gradient)


REASONS: dict[Callable[[str], object], tuple[str, ...]] = {
    priced: (), planned: ("modes must differ",), planned_alone: ("modes must differ",), asked_what_if: (),
    traced: (), sent: (), hooked: (),
    between_stages: ("its places are drawn for sums in all ranks alike; take rand-k-gathered", "its votes say no size"),
}  # fmt: skip
"""Every place that takes a name, with why it refuses one that is known."""


@given(every, st.sampled_from(list(REASONS)))
def test_every_spelling_is_taken_everywhere_or_refused_with_a_reason(spelling: str, place: object) -> None:
    taken_or_refused(spelling, place)  # type: ignore[arg-type]


def taken_or_refused(spelling: str, place: Callable[[str], object]) -> None:
    try:
        place(spelling)
    except InputError as error:
        line = str(error)
    else:
        return
    assert "\n" not in line
    assert any(reason in line for reason in REASONS[place]), line


@pytest.mark.parametrize("place", REASONS)
@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused_everywhere_in_the_same_words(name: str, place: Callable[[str], object]) -> None:
    with pytest.raises(InputError, match=r"must be one of none, fp16|a share must be|a rank must be"):
        place(name)


@pytest.mark.parametrize(("name", "spellings"), SPELLINGS.items())
def test_what_a_file_has_under_one_spelling_is_asked_for_by_any(name: str, spellings: tuple[str, ...]) -> None:
    """Modes of a trace, and of a profile at its own costs."""
    columns = {"error": np.ones((1, 1, 2)), "compress_s": np.zeros((1, 2))}
    trace = replace(trace_of("plain"), modes=(name, "fp16" if name != "fp16" else "plain"), **columns)
    profile = replace(load_fusion_profile("resnet50"), modes=(Mode(name, FREE, error="exact"), Mode("own", FREE)))
    for spelling in spellings:
        assert trace.in_modes([spelling]).modes == (name,)
        assert problem(profile, modes=[spelling]).modes == (name,)
    for other in ("topk:0.3", "onebit" if name != "onebit" else "dgc"):
        with pytest.raises(InputError, match=f"modes: must be one of {name}, "):
            trace.in_modes([other])


@pytest.mark.parametrize(("name", "spellings"), SPELLINGS.items())
def test_all_spellings_are_one_compressor(name: str, spellings: tuple[str, ...]) -> None:
    figures = {(named_compressor(each).ratio, named_compressor(each).error) for each in spellings}
    assert figures == {(named_compressor(name).ratio, named_compressor(name).error)}
    assert {tuple(sent_bytes(each, shape) for shape in SHAPES) for each in spellings} == {
        tuple(sent_bytes(name, shape) for shape in SHAPES)
    }
    assert {type(method_of(each)) for each in spellings} == {type(method_of(name))}


@pytest.mark.parametrize("name", compressor_names())
def test_what_is_priced_is_what_is_sent(name: str) -> None:
    """Classes of error, and whether messages can be added up as they pass."""
    compressor, method = named_compressor(name), method_of(name)
    assert (compressor.error, compressor.rank) == (method.error, method.rank)
    assert compressor.all_reducible == (method.collective == "all_reduce")


def test_all_can_be_sent() -> None:
    assert [name.partition(":")[0] for name in sent_names()] == compressor_names()


NEW = """
from gapless.profiles.compressors.casts import Plain
from gapless.profiles.compressors.compressor import Kind, by_figure_2

KINDS = (Kind.of(by_figure_2("newest", "a new one", 8.0, 1, 1, "unbiased", all_reducible=True), Plain),)
"""


def test_a_new_compressor_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the folder, and nothing else: its name is known to profiles, plans and hooks."""
    (tmp_path / "zz_newest.py").write_text(NEW)
    monkeypatch.setattr(grammar.compressors, "__path__", [*grammar.compressors.__path__, str(tmp_path)])
    caches = [each for each in vars(grammar).values() if hasattr(each, "cache_clear")]
    try:
        for each in caches:
            each.cache_clear()
        assert compressor_names()[-1] == "newest"
        assert planned("newest")
        assert sent_bytes("newest", (3, 5)) == 60
        assert hooked("newest")
    finally:
        sys.modules.pop("gapless.profiles.compressors.zz_newest", None)
        monkeypatch.undo()
        for each in caches:
            each.cache_clear()
