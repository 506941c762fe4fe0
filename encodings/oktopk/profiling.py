"""`gapless profile sparsity`: index sets recorded in training in processes of this machine. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.profiles.sparsity.index_file import write_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.system import Answer, Session

__all__ = ["profile_sparsity"]


def profile_sparsity(values: Mapping[str, Any], session: Session) -> Answer:
    """Train, record what each rank selects, and write the sets."""
    check_writable(values["output"])
    if not values["output"].endswith(".npz"):
        raise InputError(f"output: must end in .npz, got {values['output']!r}")
    from gapless.torch.sparse.training import TrainingTask, recorded

    counts = (values[name] for name in ("steps", "ranks", "learning_rate", "wait"))
    task = TrainingTask(values["model"], session.options.seed, *counts)
    session.say(f"training {values['model']} in {values['ranks']} processes ...")
    found = recorded(task, values["density"], session.options.stop, session.ranks)
    if session.is_first:
        write_index_sets(values["output"], found.sets)
    sets = found.sets
    data = {
        "name": sets.name,
        "elements": sets.elements,
        "parameters": len(sets.parameter_names),
        "ranks": sets.ranks,
        "steps": sets.steps,
        "density": sets.density,
        "fill_in": [len(sets.union(step)) / sets.elements for step in (0, sets.steps - 1)],
        "losses": list(found.losses),
        "output": values["output"],
    }
    return Answer(data, _text(data, sets))


def _text(data: Mapping[str, Any], sets: IndexSets) -> str:
    each, first, last = int(sets.counts[-1].mean()), data["losses"][0], data["losses"][-1]
    fill_in = " to ".join(f"{share:.2%}" for share in data["fill_in"])
    return "\n".join([
        f"{each:,} of {data['elements']:,} entries a rank and step, in {data['parameters']} parameters; "
        f"{data['steps']} steps of {data['ranks']} ranks",
        f"density {data['density']:.2%}; of all ranks together {fill_in}, first to last step",
        f"loss {first:.3f} to {last:.3f}",
    ])  # fmt: skip
