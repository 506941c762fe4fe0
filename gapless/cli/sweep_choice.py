"""`gapless sweep FILE --choose`: of measured configurations the best under limits."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.signals import Listening
from gapless.errors import InputError

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.sweeps.measured import Answer, MeasureFile
    from gapless.sweeps.measured.answer import AnswerRow

__all__ = ["add_options", "check_options", "choose_from", "is_measure_file"]

_UNSUITED = {"threads": 0, "engine": "local", "engine_option": []}
"""Options of other sweep files, by what they are where nobody has said them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that go with a measure file."""
    group = parser.add_argument_group("choice, of a file of measured commands (format gapless.measure)")
    group.add_argument("--choose", metavar="max:METRIC", help="the metric to have most of, or least (min:METRIC)")
    group.add_argument(
        "--subject-to", metavar="METRIC<=VALUE", action="append", default=[],
        help="a limit, such as memory<=1GiB or recall>=0.9; may stand several times",
    )  # fmt: skip


def is_measure_file(path: str) -> bool:
    """Whether a file says that it lists configurations to measure."""
    from gapless.sweeps.measured.measure_file import FORMAT
    from gapless.sweeps.sweep_file import toml_or_json

    return bool(toml_or_json(path).raw("format", None) == FORMAT)


def check_options(arguments: argparse.Namespace) -> None:
    """Raise `InputError` where options of measured commands stand with a file that lists none."""
    for option in ("choose", "subject_to"):
        if getattr(arguments, option):
            rule = 'goes with a file of measured commands (format = "gapless.measure")'
            raise InputError(f"--{option.replace('_', '-')}: {rule}, got {arguments.file}")


def choose_from(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from gapless.cli.progress import progress_on_stderr
    from gapless.options import available_cores
    from gapless.sweeps.measured import choose, read_measure_file, read_question

    for option, unsaid in _UNSUITED.items():
        if getattr(arguments, option) != unsaid:
            name = option.replace("_", "-")
            raise InputError(f"--{name}: does not go with measured commands, which run here, one at a time")
    file = read_measure_file(arguments.file)
    if arguments.choose is None:
        names = ", ".join(metric.name for metric in file.metrics)
        raise InputError(f"--choose: must be given with measured commands: max:METRIC or min:METRIC, of {names}")
    question = read_question(file.metrics, arguments.choose, arguments.subject_to)
    if arguments.workers > available_cores():
        raise InputError(f"--workers: must be <= {available_cores()}, the number of cores, got {arguments.workers}")
    if arguments.dry_run:
        return _list(arguments, file)
    stop = threading.Event()
    line = "stopping: measurements are kept; the same command goes on"
    with Listening(stop, line), progress_on_stderr(arguments.quiet) as on_progress:
        answer = choose(file, question, arguments.output, arguments.workers or 1, on_progress, stop)
    _print(arguments, answer)
    return _exit_code(answer)


def _list(arguments: argparse.Namespace, file: MeasureFile) -> int:
    """Which configurations there are, and how often each was measured; nothing is run."""
    from gapless.cli.output import print_json
    from gapless.report.text import table
    from gapless.sweeps.measured.log import Log

    log = Log(Path(arguments.output), file.metrics)
    counts = [
        sum(log.known(one, repeat) is not None for repeat in range(file.runs.most)) for one in file.configurations
    ]
    if arguments.json:
        rows = [
            {"hash": one.hash, "fields": dict(one.values), "repeats": count}
            for one, count in zip(file.configurations, counts, strict=True)
        ]
        print_json({"folder": arguments.output, "rows": rows})
    elif not arguments.quiet:
        lines = [[one.hash, str(count), one.title] for one, count in zip(file.configurations, counts, strict=True)]
        print(table([["hash", "runs", "configuration"], *lines]))
    return 0


def _print(arguments: argparse.Namespace, answer: Answer) -> None:
    from gapless.cli.output import print_json
    from gapless.sweeps.summary import table_files

    if arguments.json:
        print_json({**table_files(Path(arguments.output)), **answer.data, "rows": answer.rows})
        return
    for place, error in sorted(answer.race.errors.items()):
        print(f"gapless: {answer.file.configurations[place].title}: {error}", file=sys.stderr)
    if not arguments.quiet:
        print(_table(answer))
        print("\n".join(["", *_sentences(answer)]))


def _table(answer: Answer) -> str:
    """A line for each configuration: values that vary, how often it ran, its metrics, and where it stands."""
    from gapless.report.text import table

    names = list(dict.fromkeys(name for row in answer.rows for name in row["fields"]))
    units = {metric.name: metric.unit for metric in answer.file.metrics}
    titles = [name if unit in ("", "bytes", "s") else f"{name} ({unit})" for name, unit in units.items()]
    lines = [
        [*(str(row["fields"].get(name, "-")) for name in names), str(row["repeats"])]
        + [_measured_or_predicted(row, name, unit) for name, unit in units.items()]
        + [_on_front(row), row["standing"]]
        for row in answer.rows
    ]
    return table([[*names, "runs", *titles, "on the front", "standing"], *lines])


def _measured_or_predicted(row: AnswerRow, name: str, unit: str) -> str:
    """The interval that was measured; without two runs, what the model expects, after a `~`."""
    if name in row["metrics"]:
        return _interval(row["metrics"][name], unit)
    return f"~ {_interval(row['predicted'][name], unit)}" if name in row["predicted"] else "-"


def _interval(found: dict[str, float], unit: str) -> str:
    from gapless.units import format_bytes, format_seconds

    in_words: dict[str, Callable[[float], str]] = {"bytes": format_bytes, "s": format_seconds}
    mean, half = found["mean"], found["high"] - found["mean"]
    if unit in in_words:
        return f"{in_words[unit](mean)} +- {in_words[unit](half)}"
    return f"{mean:.4g} +- {half:.2g}"


def _on_front(row: AnswerRow) -> str:
    if row["front_likelihood"] is None:
        return "-"
    return f"{'yes' if row['front'] else 'no'} ({100 * row['front_likelihood']:.0f} %)"


def _sentences(answer: Answer) -> list[str]:
    """The answer in words."""
    found, file = answer.verdict, answer.file
    limits = ", ".join(limit.text for limit in answer.question.limits)
    asked = f"{answer.question.choose} subject to {limits}" if limits else answer.question.choose
    ended = {"budget": "; the budget of runs is used up", "interrupted": "; it was stopped"}
    counted = f"{len(answer.race.measured)} runs, {answer.new_runs} of them new"
    head = f"{asked}: {counted}{ended.get(answer.race.stop_reason, '')}"
    level, ifs = f"{100 * file.confidence:.4g} % confidence", ""
    if file.goes_by_model:
        tried = len({place for place, _ in answer.race.measured})
        head += f"; a model of {tried} of {len(file.configurations)} configurations judges all of them"
        ifs = ", if the model is right"
    if found.chosen is None:
        why = f"every configuration breaks a limit, with {level}{ifs}"
        return [head, why if found.status == "infeasible" else "no configuration is known to keep the limits"]
    lines = [head, f"chosen: {file.configurations[found.chosen].title}"]
    if not found.is_kept:
        lines.append(f"its means keep the limits; its intervals don't, with {level}{ifs}")
    lines.append(f"likelihood that it is the best: {100 * (found.likelihood or 0):.1f} %")
    if not found.others:
        return [*lines, f"all others are ruled out, with {level} together{ifs}"]
    titles = "; ".join(file.configurations[place].title for place in found.others[:_MOST_NAMED])
    more = f"; and {len(found.others) - _MOST_NAMED} more" if len(found.others) > _MOST_NAMED else ""
    gap = "" if found.gap is None else f" (better by at most {100 * found.gap:.2g} %)"
    return [*lines, f"not ruled out, with {level}{ifs}{gap}: {titles}{more}"]


_MOST_NAMED = 8


def _exit_code(answer: Answer) -> int:
    from gapless.cli.output import EXIT_CODES
    from gapless.solution import Status

    if answer.verdict.status == "infeasible":
        return EXIT_CODES[Status.INFEASIBLE]
    is_answered = answer.verdict.chosen is not None and answer.race.stop_reason != "interrupted"
    return 0 if is_answered else EXIT_CODES[Status.NO_SOLUTION]
