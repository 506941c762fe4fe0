"""Devices: what differs between them is behind one interface, which a recording device on the CPU shows to be whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch_steps import keep_all, left_by_eager, left_by_plan, offloading_plan, random_plan

from gapless.errors import InputError
from gapless.torch import devices
from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.cuda_allocator import CUDA_BLOCK_BYTES
from gapless.torch.devices import KINDS, Cpu, Cuda, Device, Marks, device_of
from gapless.torch.run import run
from gapless.torch.run.comparison import eager_peak_bytes
from gapless.torch.run.workload import Workload

INTERFACE = {name for name in vars(Device) if not name.startswith("_")}


class Recorder:
    """A third device: the host, in blocks of 512 bytes, with the members of the interface alone."""

    def __init__(self, device: torch.device, called: list[str]) -> None:
        self._cpu, self._called = Cpu(device), called

    def __getattr__(self, name: str) -> Any:
        if name not in INTERFACE:
            raise AttributeError(f"no part of the interface: {name}")
        self._called.append(name)
        return self._rounded if name == "rounded_bytes" else getattr(self._cpu, name)

    @staticmethod
    def _rounded(size_bytes: int) -> int:
        return Cuda(torch.device("cuda")).rounded_bytes(size_bytes)


class Small(nn.Module):
    """Layers with dropout, and their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Dropout(0.2), nn.Linear(30, 3))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.layers(given).square().mean()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the recording device, which stands for the host."""
    names: list[str] = []
    monkeypatch.setitem(KINDS, "cpu", lambda device: Recorder(device, names))
    return names


def test_a_third_device_is_asked_for_all_that_depends_on_devices(called: list[str]) -> None:
    torch.manual_seed(0)
    model, arguments = Small(), (torch.randn(4, 10),)
    step = profile(capture(model, arguments, name="small"), repeats=1)
    assert all(size % CUDA_BLOCK_BYTES == 0 for size in step.storages.size_bytes)
    expected = left_by_eager(model, lambda its: its(*arguments))
    for plan in (keep_all(step), random_plan(step, 1), offloading_plan(step, 1)):
        found = left_by_plan(model, plan, *arguments)
        assert found.differs_from(expected) == []
        assert found.peak_bytes <= plan.peak_bytes
    run(keep_all(step), model, report=lambda _: None)(*arguments)  # beside eager's step
    assert eager_peak_bytes(Workload(model, arguments)) > 0
    marks = Marks(torch.device("cpu"))
    marks.mark()
    marks.elapsed_s()
    assert INTERFACE - set(called) == {"synchronize", "make_current"}  # of ranks and of comparisons


def test_nothing_else_asks_which_device_it_is() -> None:
    folder = Path(devices.__file__).parent
    words = re.compile(r"torch\.cuda\b|[!=]= \"cuda\"")
    found = {file.name for file in folder.rglob("*.py") if words.search(file.read_text("utf-8"))}
    assert found == {"devices.py"}


def test_an_unknown_kind_of_device_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^device: must be cpu or cuda to be planned for, got meta$"):
        device_of(torch.device("meta"))


# -- a GPU that isn't there --------------------------------------------------------------------------------------------


class Event:
    """The events of a stream, a millisecond apart."""

    made = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: str) -> None:
        assert stream == "stream of cuda:1"
        Event.made += 1
        self.place = Event.made

    def elapsed_time(self, other: Event) -> float:
        return float(other.place - self.place)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> tuple[Cuda, list[str]]:
    """A GPU whose allocator holds 5000 bytes of 8192 and comes to 9000 of 20480, and what it is told."""
    told: list[str] = []

    def tell(name: str, value: object = None) -> Callable[..., object]:
        def call(*_: object) -> object:
            told.append(name)
            return value

        return call

    values = {
        "synchronize": None, "empty_cache": None, "reset_peak_memory_stats": None, "memory_allocated": 5000,
        "memory_reserved": 8192, "max_memory_allocated": 9000, "max_memory_reserved": 20480,
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setattr(torch.cuda, name, tell(name, value))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return Cuda(torch.device("cuda", 1)), told


def test_a_gpu_counts_what_its_allocator_took_above_what_was_there(gpu: tuple[Cuda, list[str]]) -> None:
    device, told = gpu
    usage, result = device.used(lambda: told.append("run"))
    assert (usage.peak_bytes, usage.reserved_bytes, result) == (4000, 12288, None)
    assert told.index("reset_peak_memory_stats") < told.index("run")
    assert told[told.index("run") + 1] == "synchronize"


def test_a_gpu_is_timed_by_events_of_its_stream(gpu: tuple[Cuda, list[str]]) -> None:
    device, told = gpu
    assert device.timed_s(lambda: told.append("run")) == pytest.approx(1e-3)
    assert told == ["run", "synchronize"]


@pytest.mark.parametrize(("size_bytes", "taken_bytes"), [(0, 0), (1, 512), (512, 512), (513, 1024)])
def test_a_gpu_takes_whole_blocks(size_bytes: int, taken_bytes: int) -> None:
    assert Cuda(torch.device("cuda")).rounded_bytes(size_bytes) == taken_bytes
