"""Matrices are sent as the product of two with few columns (PowerSGD)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.profiles.compressors.compressor import RANK, Compressor, Kind, table_flat_s, table_source
from gapless.profiles.compressors.method import FLOAT_BYTES, Bucket, Exchange, Message, Method
from gapless.profiles.compressors.unbiased import Atomo

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "PowerSgd"]


class PowerSgd(Method):
    """Each matrix as the product of two with `rank` columns, by one power iteration from the last step's.

    Two all-reduces a bucket: the left factors, with all tensors that aren't matrices or would not get smaller, then the
    right ones. A tensor of several dimensions is a matrix with the first as its rows. From one rank to another both
    factors go in one message, of a matrix that has all dimensions but the last as its rows, if they have fewer numbers.
    """

    messages = 2

    def __init__(self, rank: int) -> None:
        if rank < 1:
            raise InputError(f"rank: must be >= 1, got {rank}")
        self.rank = rank

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """Both factors, or all of what isn't factored."""
        return number_bytes * (self._factors(shape) if self.is_factored(shape) else math.prod(shape))

    def is_factored(self, shape: Sequence[int]) -> bool:
        """Whether the factors have less than half of the tensor's entries."""
        return len(shape) > 1 and 2 * self._factors(shape) < math.prod(shape)

    def _factors(self, shape: Sequence[int]) -> int:
        return self.rank * (shape[0] + math.prod(shape[1:]))

    # -- among ranks ---------------------------------------------------------------------------------------------------

    def exchange(self, bucket: Bucket) -> Exchange:
        from gapless.torch.library import torch

        shapes = bucket.shapes
        parts = bucket.gradient.split([math.prod(shape) for shape in shapes])
        factored = [number for number, shape in enumerate(shapes) if self.is_factored(shape)]
        matrices = [parts[number].view(shapes[number][0], -1) for number in factored]
        whole = [part for number, part in enumerate(parts) if number not in factored]
        rights = self._rights(matrices, bucket.memory.get("rights"))
        lefts = [matrix @ right for matrix, right in zip(matrices, rights, strict=True)]
        message = _joined([*whole, *lefts], bucket.ranks)
        for part in whole:
            part.zero_()
        received = yield Message("all_reduce", message, is_last=not matrices)
        *means, lefts = [*_parted(received, whole), _parted(received[sum(map(len, whole)) :], lefts)]
        if matrices:
            lefts = [torch.linalg.qr(left.float()).Q.to(left.dtype) for left in lefts]
            rights = [matrix.T @ left for matrix, left in zip(matrices, lefts, strict=True)]
            for matrix, left, right in zip(matrices, lefts, rights, strict=True):
                matrix.sub_(left @ right.T)
            rights = _parted((yield Message("all_reduce", _joined(rights, bucket.ranks))), rights)
            bucket.memory["rights"] = rights
        for number, left, right in zip(factored, lefts, rights, strict=True):
            means.insert(number, (left @ right.T).flatten())
        return torch.cat(means)

    def _rights(self, matrices: Sequence[torch.Tensor], last: object) -> list[torch.Tensor]:
        """Right factors to begin with: the last step's, cut or filled up where the rank was another then."""
        from gapless.torch.library import torch

        starts = [self._start(matrix, matrix.shape[0]) for matrix in matrices]
        if not isinstance(last, Sequence) or len(last) != len(starts):
            return starts
        return [torch.cat([old, start[:, old.shape[1] :]], 1)[:, : self.rank]
                for old, start in zip(last, starts, strict=True)]  # fmt: skip

    def _start(self, matrix: torch.Tensor, seed: int) -> torch.Tensor:
        """What the first power iteration starts from, in all ranks alike."""
        from gapless.torch.library import torch

        return torch.randn(matrix.shape[1], self.rank, generator=torch.Generator().manual_seed(seed)).to(matrix)

    # -- from one rank to another --------------------------------------------------------------------------------------

    def _sent_numbers(self, gradient: torch.Tensor) -> int:
        rows, columns = map(int, _matrix(gradient).shape)
        return min(self.rank * (rows + columns), rows * columns)

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """Both factors, the orthonormal one first."""
        from gapless.torch.library import torch

        matrix, memory = _matrix(gradient), {} if memory is None else memory
        if self._sent_numbers(gradient) == matrix.numel():
            return matrix.reshape(-1).clone()
        if "right" not in memory:
            memory["right"] = self._start(matrix, 0)
        left = torch.linalg.qr((matrix @ memory["right"]).float()).Q.to(matrix.dtype)
        right = matrix.T @ left
        if torch.isfinite(right).all():  # an overflow mustn't spoil what comes later
            memory["right"] = right
        return torch.cat([left.reshape(-1), right.reshape(-1)])

    def room(self, gradient: torch.Tensor) -> torch.Tensor:
        """Room for both factors."""
        return gradient.new_empty(self._sent_numbers(gradient))

    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The product of the factors."""
        rows, columns = _matrix(gradient).shape
        if len(payload) == rows * columns:
            return payload.view(gradient.shape)
        left, right = payload.split([rows * self.rank, columns * self.rank])
        return (left.view(rows, self.rank) @ right.view(columns, self.rank).T).view(gradient.shape)


def _matrix(gradient: torch.Tensor) -> torch.Tensor:
    """All dimensions but the last as rows."""
    return gradient.reshape(-1, gradient.shape[-1])


def _joined(tensors: Sequence[torch.Tensor], ranks: int) -> torch.Tensor:
    """A share of all of them, one after the other."""
    from gapless.torch.library import torch

    return torch.cat([tensor.flatten() for tensor in tensors]).mul_(1 / ranks)


def _parted(flat: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors at its beginning, in the shapes of others."""
    parts = flat[: sum(tensor.numel() for tensor in like)].split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


# -- what is published -------------------------------------------------------------------------------------------------

_POWERSGD_MS, _POWERSGD_RANK, _POWERSGD_RATIO = 45.0, 4, 100.0
_DECODED_RANKS = 64


def _powersgd(rank: float, name: str) -> Compressor:
    """Three products of about the same work, two to encode and one to decode; TABLE 4.1 has the sum at rank 4.

    Columns are made orthogonal one after the other, so that a higher rank takes in proportion; a lower one reads the
    gradient as often as rank 4.
    """
    flat_s = table_flat_s(_POWERSGD_MS) * max(1.0, rank / _POWERSGD_RANK)
    what = f"rank {rank:g}; matrices as two factors, vectors as they are"
    ratio, source = _POWERSGD_RATIO * _POWERSGD_RANK / rank, table_source(_POWERSGD_MS)
    return Compressor(name, what, ratio, True, 2 / 3 * flat_s, 1 / 3 * flat_s, 1, source, "feedback", int(rank))


_ATOMO_MS = 1586.0


def _atomo(rank: float, name: str) -> Compressor:
    """A decomposition whatever the rank; products of factors as PowerSGD's, one for each message."""
    decode_s = 1 / 3 * _DECODED_RANKS * table_flat_s(_POWERSGD_MS) * rank / _POWERSGD_RANK
    encode_s = table_flat_s(_ATOMO_MS) - 1 / 3 * _DECODED_RANKS * table_flat_s(_POWERSGD_MS)
    what = f"{rank:g} singular triplets, drawn; vectors as they are"
    source = f"{table_source(_ATOMO_MS)}, decode as powersgd's of each message"
    ratio = _POWERSGD_RATIO * _POWERSGD_RANK / rank
    return Compressor(name, what, ratio, False, encode_s, decode_s, _DECODED_RANKS, source, "unbiased")


KINDS = (
    Kind("powersgd", _powersgd, lambda rank: PowerSgd(int(rank)), RANK, also=((r"rank (\d+)", 1),)),
    Kind("atomo", _atomo, lambda rank: Atomo(int(rank)), RANK),
)
