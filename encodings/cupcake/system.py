"""Cupcake as the rest of gapless sees it."""

from __future__ import annotations

from gapless.encodings.cupcake import decision, parameters, problem, solve, views
from gapless.encodings.cupcake.commands.options import ADVICE, PROFILES, RUN, VALIDATIONS
from gapless.encodings.cupcake.question import Question
from gapless.lazy import lazy
from gapless.system import Export, System

__all__ = ["SYSTEM"]

SYSTEM = System(
    name="cupcake",
    what="which gradients are sent together, and which are compressed",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve cupcake --profile resnet101 -o plan.json
  gapless solve cupcake --profile resnet101 --modes compress --decode before -o plan.json
  gapless solve cupcake --profile bert-base --modes plain,topk,powersgd:4 --ranks 64 --bandwidth 10Gbps -o plan.json
""",
    summary=("method", "scaling", "exposed_s"),
    headline=("{profile}, {gradient_bytes} of gradients", "compression: {modes}"),
    lighter="a smaller most_labels in --parameters",
    view=lazy(lambda: views.render),
    exports=(
        Export(
            "ddp-buckets",
            "buckets for PyTorch's DistributedDataParallel",
            lazy(lambda: views.write_buckets),
        ),
    ),
    advice=ADVICE,
    runs=(RUN,),
    profiles=PROFILES,
    validations=VALIDATIONS,
    decision=lambda: decision.FusionDecision,
    package="gapless.encodings.cupcake",
)
