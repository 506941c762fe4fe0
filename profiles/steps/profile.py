"""A training step by layers: arithmetic, collectives that layers wait for, gradients that are added up meanwhile.

The file is JSON; `//` comments are allowed, unknown fields are refused::

    {"format": "gapless.training-step", "version": 1, "name": "mine", "source": "where the numbers are from",
     "device": "v100", "bucket_bytes": 26214400, "tensor_parallel": false,
     "layers": [{"name": "block", "count": 12, "forward_flops": 3.3e9, "gradient_bytes": [4194304, 4194304],
                 "forward": [{"collective": "allreduce", "bytes_per_sample": 524288}],
                 "backward": [{"collective": "alltoall", "bytes": 6000000}]}]}

`forward_flops` are of one sample, in single precision; a backward pass takes twice as many. `bytes` are those of the
larger buffer of a rank. With `tensor_parallel` all ranks share a layer's arithmetic, and a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from gapless.errors import InputError
from gapless.io.record import Record, load_record, parse_record, suggestion
from gapless.ir.collective import COLLECTIVES
from gapless.profiles.devices import ARITHMETIC_EFFICIENCY, device_names, named_device

__all__ = ["BACKWARD", "Exchange", "Layer", "TrainingStep", "find_training_step", "training_step_names"]

FORMAT, VERSION = "gapless.training-step", 1
BACKWARD = 2.0
"""Arithmetic of a backward pass over that of the forward pass: gradients of inputs, and of weights."""
_SHIPPED = ("bert-large", "mixture-of-experts", "transformer-xl")


@dataclass(frozen=True)
class Exchange:
    """A collective that a layer waits for. `size_bytes`: of the larger buffer of a rank, `is_each`: a sample."""

    collective: str
    size_bytes: float
    is_each: bool

    def at(self, batch: int) -> float:
        """Bytes of the larger buffer for so many samples."""
        return self.size_bytes * (batch if self.is_each else 1)


@dataclass(frozen=True)
class Layer:
    """`count` layers alike in a row. `gradient_bytes`: of each tensor, in the order of the backward pass."""

    name: str
    count: int
    forward_flops: float
    forward: tuple[Exchange, ...]
    backward: tuple[Exchange, ...]
    gradient_bytes: tuple[int, ...]


@dataclass(frozen=True)
class TrainingStep:
    """The layers in the order of the forward pass. `bucket_bytes`: a bucket of gradients is sent once it holds so much.

    `tensor_parallel`: all ranks share each layer's arithmetic. `device`: where it is computed.
    """

    name: str
    source: str
    device: str
    bucket_bytes: int
    tensor_parallel: bool
    layers: tuple[Layer, ...]

    def forward_s(self, layer: Layer, batch: int, ranks: int) -> float:
        """Seconds of one layer's forward pass on a rank, for `batch` samples."""
        rate = ARITHMETIC_EFFICIENCY * named_device(self.device).flops_per_s
        return layer.forward_flops * batch / rate / (ranks if self.tensor_parallel else 1)

    def sizes(self, batch: int) -> dict[str, tuple[float, ...]]:
        """The sizes of its collectives, by name, ascending, each once."""
        found: dict[str, set[float]] = {}
        for layer in self.layers:
            for exchange in (*layer.forward, *layer.backward):
                found.setdefault(exchange.collective, set()).add(exchange.at(batch))
        for bucket in self.buckets():
            found.setdefault("allreduce", set()).add(float(bucket))
        return {name: tuple(sorted(sizes)) for name, sizes in sorted(found.items())}

    def buckets(self) -> list[int]:
        """Bytes of the buckets of gradients, in the order in which they are sent."""
        return [size for _, sent in self.backward_pass() for size in sent]

    def backward_pass(self) -> list[tuple[Layer, tuple[int, ...]]]:
        """The layers one by one, the last first, with the buckets that are full after each; the last bucket is rest."""
        order = [layer for layer in reversed(self.layers) for _ in range(layer.count)]
        found, held = list[tuple[Layer, tuple[int, ...]]](), 0
        for number, layer in enumerate(order):
            full = list[int]()
            for size in layer.gradient_bytes:
                held += size
                if held >= self.bucket_bytes:
                    full.append(held)
                    held = 0
            if held and number + 1 == len(order):
                full.append(held)
            found.append((layer, tuple(full)))
        return found


def training_step_names() -> list[str]:
    """The training steps that gapless ships."""
    return list(_SHIPPED)


def find_training_step(step: str | Path | TrainingStep) -> TrainingStep:
    """The shipped step of that name, that in a file, or the step itself. Raises `InputError` naming the field."""
    if isinstance(step, TrainingStep):
        return step
    name = str(step)
    if name in _SHIPPED:
        text = (files("gapless.profiles.steps") / f"{name}.json").read_text(encoding="utf-8")
        return _read(parse_record(text, f"{name}.json"))
    if not Path(name).suffix:
        hint = suggestion(name, _SHIPPED) or "or a file"
        raise InputError(f"step: must be one of {', '.join(_SHIPPED)}, or a file, got {name!r}; {hint}")
    return _read(load_record(step))


def _read(record: Record) -> TrainingStep:
    record.of_format(FORMAT, VERSION)
    step = TrainingStep(
        name=record.text("name"),
        source=record.text("source", default=""),
        device=record.text("device", device_names()),
        bucket_bytes=record.integer("bucket_bytes", 1, default=26_214_400),
        tensor_parallel=record.boolean("tensor_parallel", default=False),
        layers=tuple(_read_layer(entry) for entry in record.records("layers")),
    )
    record.close()
    if not step.layers:
        raise record.fail("layers", "a list of at least one layer", [])
    return step


def _read_layer(record: Record) -> Layer:
    layer = Layer(
        name=record.text("name"),
        count=record.integer("count", 1, 10_000, default=1),
        forward_flops=record.number("forward_flops", 0),
        forward=tuple(_read_exchange(entry) for entry in record.records("forward", default=[])),
        backward=tuple(_read_exchange(entry) for entry in record.records("backward", default=[])),
        gradient_bytes=record.integers("gradient_bytes", 1, default=()),
    )
    record.close()
    return layer


def _read_exchange(record: Record) -> Exchange:
    is_each = "bytes_per_sample" in record
    if is_each == ("bytes" in record):
        raise InputError(f"{record.where}: must have one of the fields bytes, bytes_per_sample, got {record.names()}")
    exchange = Exchange(
        record.text("collective", COLLECTIVES), record.number("bytes_per_sample" if is_each else "bytes", 1), is_each
    )
    record.close()
    return exchange
