"""Recommendation models and their data sets.

Tables 5.1 and 5.2 are those of the evaluation of *Accelerating deep recommendation model training*.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise

from gapless.errors import InputError
from gapless.io.record import check_known, parse_record
from gapless.profiles.traces.power_law import PowerLaw
from gapless.profiles.traces.trace import MOST_IDS

__all__ = [
    "FLOAT_BYTES",
    "DenseModel",
    "EmbeddingDataset",
    "dense_model_names",
    "embedding_dataset_names",
    "named_dense_model",
    "named_embedding_dataset",
    "table_laws",
]

FLOAT_BYTES = 4


@dataclass(frozen=True)
class EmbeddingDataset:
    """A data set and the embedding tables that go with it (Table 5.1).

    `tables`: categorical features, one table and one id of an example each. `numbers`: features that are numbers.
    `rows`: of all tables together, as published. `dimension`: fp32 values of a row. `table_rows`: of each table; their
    sum is `rows` but for rounding.
    """

    name: str
    examples: int
    tables: int
    numbers: int
    rows: int
    dimension: int
    table_rows: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Of one embedding."""
        return self.dimension * FLOAT_BYTES

    @property
    def size_bytes(self) -> int:
        """Of all embeddings; for Criteo Terabyte the text states 157 GB, which is more than rows x dimension x 4."""
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class DenseModel:
    """The dense part of a recommendation model: what each trainer holds a copy of (Table 5.2).

    `stacks`: fully connected layers, as widths from the input to the output, with biases. `other_weights`: parameters
    outside of them that every example multiplies with once. `idle_weights`: parameters that cost an example no
    arithmetic worth counting (scales, biases, and a weight per embedding row, of which an example uses a few).
    `interaction_macs`: multiplications with additions, an example, between embeddings, without parameters.
    """

    name: str
    architecture: str
    stacks: tuple[tuple[int, ...], ...]
    other_weights: int = 0
    idle_weights: int = 0
    interaction_macs: int = 0

    def __post_init__(self) -> None:
        for stack in self.stacks:
            if len(stack) < 2 or min(stack) < 1:
                raise InputError(f"model {self.name!r}: a stack must have two or more widths >= 1, got {stack}")
        for title in ("other_weights", "idle_weights", "interaction_macs"):
            if getattr(self, title) < 0:
                raise InputError(f"model {self.name!r}: {title} must be >= 0, got {getattr(self, title)}")

    @property
    def parameters(self) -> int:
        """Number of dense parameters, as in Table 5.2."""
        return sum((before + 1) * after for before, after in self._layers()) + self.other_weights + self.idle_weights

    @property
    def size_bytes(self) -> int:
        """Of the parameters, and so of their gradients, in fp32."""
        return self.parameters * FLOAT_BYTES

    @property
    def macs(self) -> int:
        """Multiplications with additions of one example's forward pass."""
        return sum(before * after for before, after in self._layers()) + self.other_weights + self.interaction_macs

    def training_flops(self, batch_size: int) -> int:
        """Arithmetic of forward and backward pass: two operations a MAC, and backward costs twice the forward pass.

        Backward is gradients by the weights and by the inputs. Activation functions and the loss aren't counted.
        """
        if batch_size < 1:
            raise InputError(f"model {self.name!r}: the batch size must be >= 1, got {batch_size}")
        return 3 * 2 * self.macs * batch_size

    def _layers(self) -> list[tuple[int, int]]:
        return [layer for stack in self.stacks for layer in pairwise(stack)]


# Inputs are those of Criteo Kaggle at dimension 48: 13 numbers and 26 embeddings, 1248 values. Table 5.2 gives widths
# and sums of parameters; what it leaves out is filled in so that the sums come out exactly.
_MODELS = {
    model.name: model
    for model in (
        DenseModel(
            "dlrm",
            "FC 13-512-256-64-48, pairwise products of 27 vectors, FC 399-1024-1024-1024-256-128-1",
            stacks=((13, 512, 256, 64, 48), (48 + 27 * 26 // 2, 1024, 1024, 1024, 256, 128, 1)),
            interaction_macs=27 * 26 // 2 * 48,
        ),
        DenseModel(
            "wide-and-deep",
            "FC 13-256-256-256, and FC 1504-1 on its output and the embeddings",
            stacks=((13, 256, 256, 256), (256 + 1248, 1)),
        ),
        # The cross weights aren't in the table: 44,064 of 1,296 inputs are left, as 17 layers of the first Deep & Cross
        # network would have, or two of its successor at rank 8. The arithmetic is the same either way.
        DenseModel(
            "deep-and-cross",
            "FC 13-1024-512-256-64-48, cross layers on 1296 values, FC 1296-1024-512-256-1",
            stacks=((13, 1024, 512, 256, 64, 48), (48 + 1248, 1024, 512, 256, 1)),
            other_weights=34 * 1296,
        ),
        # A weight per embedding row and one bias; three batch norms of 64; the factorisation is two sums of squares.
        DenseModel(
            "deepfm",
            "linear 33762577-1, factorisation of 26 vectors, FC 1248-64-64-64-1 with batch norm",
            stacks=((1248, 64, 64, 64, 1),),
            idle_weights=33_762_577 + 1 + 3 * 2 * 64,
            interaction_macs=2 * 1248,
        ),
    )
}


def table_laws(dataset: str) -> tuple[tuple[str, ...], tuple[PowerLaw, ...]]:
    """Names of a data set's tables, and the law of the ids in each. Raises `InputError` for an unknown data set."""
    check_known("data set", dataset, embedding_dataset_names())
    name = f"{dataset.replace('-', '_')}.json"
    record = parse_record((files("gapless.profiles.traces") / name).read_text(encoding="utf-8"), name)
    record.of_format("gapless.table-laws")
    record.integer("version", 1, 1)
    record.text("name")
    names, laws = [], []
    for entry in record.records("tables"):
        names.append(entry.text("name"))
        rows = entry.integer("rows", 1, MOST_IDS)
        laws.append(PowerLaw(rows, entry.number("exponent", 0), entry.number("shift", 0), entry.number("atom", 0)))
        entry.close()
    record.close()
    return tuple(names), tuple(laws)


_KAGGLE, _AVAZU, _TERABYTE = "criteo-kaggle", "avazu", "criteo-terabyte"


def embedding_dataset_names() -> list[str]:
    """The data sets that gapless knows."""
    return [_KAGGLE, _AVAZU, _TERABYTE]


def dense_model_names() -> list[str]:
    """The models that gapless knows."""
    return list(_MODELS)


def named_embedding_dataset(name: str) -> EmbeddingDataset:
    """A data set by name. Raises `InputError` for an unknown one."""
    table_rows = tuple(law.rows for law in table_laws(name)[1])
    if name == _AVAZU:
        return EmbeddingDataset(name, 40_400_000, len(table_rows), 1, 9_400_000, 48, table_rows)
    if name == _TERABYTE:
        return EmbeddingDataset(name, 4_370_000_000, len(table_rows), 13, 882_770_000, 16, table_rows)
    return EmbeddingDataset(name, 39_200_000, len(table_rows), 13, sum(table_rows), 48, table_rows)


def named_dense_model(name: str) -> DenseModel:
    """A model by name. Raises `InputError` for an unknown one."""
    check_known("model", name, _MODELS)
    return _MODELS[name]
