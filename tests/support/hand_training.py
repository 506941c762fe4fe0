"""Training graphs small enough to count by hand."""

from __future__ import annotations

from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant

__all__ = ["CONV", "CONV_2", "LOSS", "MASK", "RELU", "chain", "tiny"]

CONV, RELU, MASK, CONV_2, LOSS = range(5)


def tiny() -> TrainingGraph:
    """Convolution, ReLU with a mask on the side, convolution, loss: 40, 40, 5, 30, 1 bytes beside 100 fixed ones.

    The backward nodes are 5 to 8. The ReLU's needs its input, its output, or the mask.
    """
    forward = (
        ForwardNode("conv.0", "conv", 40, (), (Implementation(2.0, 50, "fast"), Implementation(4.0, 0, "small"))),
        ForwardNode(
            "relu.1", "relu", 40, (0,), (Implementation(1.0),), overwrites=0, in_place=(Implementation(0.75, -40),)
        ),
        ForwardNode(
            "mask.2",
            "mask",
            5,
            (1,),
            (Implementation(0.5),),
            creator=1,
            overwrites=0,
            in_place=(Implementation(0.25, -40),),
        ),
        ForwardNode("conv.3", "conv", 30, (1,), (Implementation(3.0),), again=(Implementation(2.5),)),
        ForwardNode("loss.4", "loss", 1, (3,), (Implementation(0.0),)),
    )
    relu = tuple(Variant((need,), (Implementation(1.0, -40),)) for need in (CONV, RELU, MASK))
    backward = (
        BackwardNode("conv_param.5", "conv", CONV_2, 0, (4,), (Variant((RELU,), (Implementation(3.0),)),), 110),
        BackwardNode("conv_ip.6", "conv", CONV_2, 40, (4,), (Variant((), (Implementation(3.0),)),), 110),
        BackwardNode("relu_ip.7", "relu", RELU, 40, (6,), relu, 110),
        BackwardNode("conv_param.8", "conv", CONV, 0, (7,), (Variant((), (Implementation(2.0),)),), 120),
    )
    return TrainingGraph("tiny", 1, forward, backward, 100)


def chain(length: int, size_bytes: int = 10) -> TrainingGraph:
    """`length` ops in a row, each of a second forward and backward; each backward node needs the op's input."""
    loss = length
    forward = [
        ForwardNode(f"op.{k}", "op", size_bytes, (k - 1,) if k else (), (Implementation(1.0),)) for k in range(length)
    ]
    forward.append(ForwardNode(f"loss.{loss}", "loss", 1, (length - 1,), (Implementation(0.0),)))
    backward = [
        BackwardNode(
            name=f"op_grad.{loss + 1 + number}",
            op="op",
            forward=node,
            output_bytes=size_bytes if node else 0,
            gradients=(loss + number,),
            variants=(
                Variant((node - 1,) if node else (), (Implementation(1.0, -size_bytes if node and number else 0),)),
            ),
            fixed_bytes=5,
        )
        for number, node in enumerate(range(length - 1, -1, -1))
    ]
    return TrainingGraph("chain", 1, tuple(forward), tuple(backward), 5)
