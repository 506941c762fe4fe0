"""A tuned selector under torch.distributed: calls that a plan won are carried out by it, all others by the library.

    with install("tuned/"):                # by all ranks, once the default process group is there
        torch.distributed.all_reduce(x)    # the winner for this size and group, or the library

A call goes to the library where no plan has won its collective, group and size, where it is asynchronous, sums
otherwise than by SUM, has unequal splits, or has tensors that are not dense, not on the device of the backend, or of a
type that isn't a common number. Results are the library's, but for the order in which sums are added up.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.io.formats.tuned_file import Selector, read_selector
from gapless.torch.collectives.ddp import TunedState, reduce_by_winner
from gapless.torch.collectives.executor import WAIT_S
from gapless.torch.collectives.winning import WinningPlans, ranks_of
from gapless.torch.library import rank_count, torch

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Installed", "install"]

_KINDS = frozenset({
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.int64,
})  # fmt: skip
_INSTALLED: list[Installed] = []


def install(folder: str | Path, wait_s: float = WAIT_S) -> Installed:
    """Let torch.distributed's functions take the winners of a folder that `gapless tune` wrote; called by all ranks.

    `wait_s`: the longest that a rank waits for a message of another. Raises `InputError` for a folder that isn't whole,
    for other ranks or another backend than were tuned for, and where a selector is installed already.
    """
    if _INSTALLED:
        raise InputError("install: a selector is installed already; call its uninstall() first")
    selector = read_selector(folder)
    ranks, backend = rank_count(None), torch.distributed.get_backend()
    if (ranks, backend) != (selector.ranks, selector.backend):
        tuned = f"was tuned for {selector.ranks} ranks over {selector.backend}"
        raise InputError(f"{folder}: {tuned}, the process group has {ranks} over {backend}")
    return Installed(Path(folder), selector, wait_s)


class Installed:
    """A selector that is installed, until `uninstall` or the end of a `with` block.

    `taken`, `left`: how many calls of each collective a plan, or the library, has carried out.
    """

    def __init__(self, folder: Path, selector: Selector, wait_s: float) -> None:
        self.taken: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self._folder, self._selector, self._wait_s = folder, selector, wait_s
        self._device = "cuda" if selector.backend == "nccl" else "cpu"
        self._plans = WinningPlans(folder, selector, wait_s)
        self._lock = threading.RLock()
        distributed = torch.distributed
        self._library: dict[str, Callable[..., Any]] = {}
        for names, replacement in _REPLACEMENTS.items():
            name = next(name for name in names if hasattr(distributed, name))
            original = getattr(distributed, name)
            self._library[name] = original
            own = functools.wraps(original)(functools.partial(replacement, self, original))
            for module in (distributed, distributed.distributed_c10d):
                setattr(module, name, own)
        _INSTALLED.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def uninstall(self) -> None:
        """The library's functions stand where they stood."""
        if self not in _INSTALLED:
            return
        _INSTALLED.remove(self)
        for name, original in self._library.items():
            for module in (torch.distributed, torch.distributed.distributed_c10d):
                setattr(module, name, original)

    def register(self, ddp: torch.nn.parallel.DistributedDataParallel) -> TunedState:
        """Let a model's gradients be summed by the winners, too: DDP calls the library without its functions.

        A bucket whose size no plan serves is summed by the library; what is returned counts both. To be called before
        the first backward pass, by all ranks.
        """
        plans = WinningPlans(self._folder, self._selector, self._wait_s)  # with channels of their own
        state = TunedState(plans, self._library["all_reduce"], ddp.process_group)
        ddp.register_comm_hook(state, reduce_by_winner)
        return state

    def run(
        self, collective: str, given: torch.Tensor, output: torch.Tensor,
        group: torch.distributed.ProcessGroup | None, size_bytes: int,
    ) -> bool:  # fmt: skip
        """Whether a plan has done it; both tensors are dense then."""
        fits = all(
            tensor.dtype in _KINDS and tensor.device.type == self._device and tensor.is_contiguous()
            for tensor in (given, output)
        )
        with self._lock:
            plan = self._plans.plan_for(collective, size_bytes, group) if fits and given.dtype == output.dtype else None
        if plan is None:
            self.left[collective] += 1
            return False
        with self._lock, torch.no_grad():
            plan(given.detach().view(-1), output.detach().view(-1))
        self.taken[collective] += 1
        return True


_Group = Any
"""A process group, or None; torch's own annotation is newer than the oldest torch that is supported."""


def _is_sum(op: object) -> bool:
    return bool(op == torch.distributed.ReduceOp.SUM)


def _all_reduce(
    own: Installed, library: Callable[..., Any], tensor: torch.Tensor, op: Any = torch.distributed.ReduceOp.SUM,
    group: _Group = None, async_op: bool = False,
) -> Any:  # fmt: skip
    if not async_op and _is_sum(op) and own.run("allreduce", tensor, tensor, group, tensor.nbytes):
        return None
    return library(tensor, op, group, async_op)


def _all_gather_into_tensor(
    own: Installed, library: Callable[..., Any], output_tensor: torch.Tensor, input_tensor: torch.Tensor,
    group: _Group = None, async_op: bool = False,
) -> Any:  # fmt: skip
    is_whole = output_tensor.numel() == input_tensor.numel() * rank_count(group)
    if not async_op and is_whole and own.run("allgather", input_tensor, output_tensor, group, input_tensor.nbytes):
        return None
    return library(output_tensor, input_tensor, group, async_op)


def _reduce_scatter_tensor(
    own: Installed, library: Callable[..., Any], output: torch.Tensor, input: torch.Tensor,
    op: Any = torch.distributed.ReduceOp.SUM, group: _Group = None, async_op: bool = False,
) -> Any:  # fmt: skip
    is_whole = input.numel() == output.numel() * rank_count(group)
    if not async_op and _is_sum(op) and is_whole and own.run("reducescatter", input, output, group, input.nbytes):
        return None
    return library(output, input, op, group, async_op)


def _all_to_all_single(
    own: Installed, library: Callable[..., Any], output: torch.Tensor, input: torch.Tensor,
    output_split_sizes: list[int] | None = None, input_split_sizes: list[int] | None = None, group: _Group = None,
    async_op: bool = False,
) -> Any:  # fmt: skip
    is_even = not output_split_sizes and not input_split_sizes and input.numel() == output.numel()
    is_whole = is_even and input.numel() % rank_count(group) == 0
    if not async_op and is_whole and own.run("alltoall", input, output, group, input.nbytes):
        return None
    return library(output, input, output_split_sizes, input_split_sizes, group, async_op)


def _broadcast(
    own: Installed, library: Callable[..., Any], tensor: torch.Tensor, src: int | None = None, group: _Group = None,
    async_op: bool = False, group_src: int | None = None,
) -> Any:  # fmt: skip
    is_first = _is_first(own, src, group_src, group)
    if not async_op and is_first and own.run("broadcast", tensor, tensor, group, tensor.nbytes):
        return None
    return library(tensor, src, group, async_op, *(() if group_src is None else (group_src,)))


def _reduce(
    own: Installed, library: Callable[..., Any], tensor: torch.Tensor, dst: int | None = None,
    op: Any = torch.distributed.ReduceOp.SUM, group: _Group = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Any:  # fmt: skip
    is_first = _is_first(own, dst, group_dst, group)
    if not async_op and _is_sum(op) and is_first and own.run("reduce", tensor, tensor, group, tensor.nbytes):
        return None
    return library(tensor, dst, op, group, async_op, *(() if group_dst is None else (group_dst,)))


def _is_first(own: Installed, root: int | None, group_root: int | None, group: _Group) -> bool:
    """Whether the root is the first rank of the group: plans were made for that one."""
    if group_root is not None:
        return root is None and group_root == 0
    return root is not None and torch.distributed.get_rank(group) >= 0 and ranks_of(group)[0] == root


_REPLACEMENTS: dict[tuple[str, ...], Callable[..., Any]] = {
    ("all_reduce",): _all_reduce,
    ("all_gather_single", "all_gather_into_tensor"): _all_gather_into_tensor,
    ("reduce_scatter_single", "reduce_scatter_tensor"): _reduce_scatter_tensor,
    ("all_to_all_single",): _all_to_all_single,
    ("broadcast",): _broadcast,
    ("reduce",): _reduce,
}
"""By name: (selector, the library's function, its arguments) -> its result. Where torch has the first of two names, the
second calls it.
"""
