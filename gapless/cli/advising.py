"""`gapless advise`: whether compressing gradients pays and what would change that; caches of embeddings."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from gapless.cli import advising_bagpipe
from gapless.cli import arguments as shared
from gapless.cli.networks import add_network_options, read_network

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.cupcake.advice import Advice, Option
    from gapless.profiles.gradients.communication import RingNetwork
    from gapless.profiles.gradients.ddp_model import DdpModel, Table

__all__ = ["add_commands"]

_COMPRESSION_EXAMPLE = """\
Each compressor gets its best fusion of the profile's gradients, at published costs, and is compared with no compression
in the best size of buckets from 2 to 64 MB. `pays below`: the bandwidth at which it stops paying.

example:
  gapless advise compression --profile resnet101 --ranks 64 --bandwidth 10Gbps --latency 10us
"""

_ADVISE_EXAMPLE = """\
example (`gapless advise QUESTION --help` has more):
  gapless advise compression --profile resnet101 --ranks 64 --bandwidth 10Gbps --latency 10us
"""

_WHAT_IF_EXAMPLE = """\
An analytic model of the backward pass and the synchronisation, with buckets of 25 MB: no search, no forward pass.

example:
  gapless advise what-if --figure bandwidth --profile resnet101 --ranks 64 --bandwidth 10Gbps --compressor powersgd
"""

_GBPS = 1e9 / 8
_BANDWIDTHS = tuple(gbps * _GBPS for gbps in (1, 2, 4, 6, 8, 10, 15, 20, 25, 30))
_BATCH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_SPEEDS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
_TRADE_OFF_SPEEDS, _PENALTIES = (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0)
_FIGURES = {
    "bandwidth": "other bandwidths",
    "batch": "other batch sizes, as factors of the profile's",
    "compute": "a device so many times as fast",
    "tradeoff": "encode and decode k times as fast at l k times the bytes",
    "ratio": "the compression ratio that is enough for close to linear scaling",
}


def add_commands(commands: Any) -> None:
    """Add `advise` with its questions."""
    parser = _question(
        commands, "advise", "whether compressing gradients pays, which embedding cache suits", _ADVISE_EXAMPLE
    )
    questions = parser.add_subparsers(metavar="question", required=True)
    _add_compression(questions)
    _add_what_if(questions)
    advising_bagpipe.add_question(questions)


def _add_compression(questions: Any) -> None:
    parser = _question(questions, "compression", "every compressor's best plan against none", _COMPRESSION_EXAMPLE)
    group = parser.add_argument_group("problem")
    _add_case(group)
    group.add_argument(
        "--compressor", nargs="+", default=["all"], metavar="NAME",
        help="`gapless list compressors`, or all (default)",
    )  # fmt: skip
    group.add_argument(
        "--device", default="v100", metavar="NAME", help="where gradients are encoded and decoded (default v100)"
    )
    shared.add_output_options(parser)
    parser.set_defaults(run=_compression)


def _add_what_if(questions: Any) -> None:
    parser = _question(questions, "what-if", "tables of the analytic performance model", _WHAT_IF_EXAMPLE)
    group = parser.add_argument_group("problem")
    figures = "; ".join(f"{name}: {what}" for name, what in _FIGURES.items())
    group.add_argument("--figure", choices=list(_FIGURES), required=True, help=figures)
    _add_case(group)
    group.add_argument("--compressor", default="powersgd", metavar="NAME", help="powersgd (default)")
    shared.add_output_options(parser)
    parser.set_defaults(run=_what_if)


def _question(questions: Any, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = questions.add_parser(
        name, help=help_text, epilog=example, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return parser


def _add_case(group: Any) -> None:
    group.add_argument(
        "--profile", required=True, metavar="NAME|FILE", help="a fusion profile: `gapless list profiles`"
    )
    add_network_options(group)


def _network_data(network: RingNetwork) -> dict[str, Any]:
    return {
        "ranks": network.ranks,
        "bandwidth_bytes_per_s": _finite(network.bytes_per_s),
        "latency_s": network.alpha_s,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# -- compression -------------------------------------------------------------------------------------------------------


def _compression(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import print_json
    from gapless.encodings.cupcake.advice import advise
    from gapless.profiles.gradients.compressors import compressor_names, named_compressor, relative_speed
    from gapless.profiles.gradients.named import find_fusion_profile

    network = read_network(arguments)
    names = list(dict.fromkeys(arguments.compressor))
    names = compressor_names() if "all" in names else names
    compressors = [named_compressor(name) for name in names]
    speed = relative_speed(arguments.device)
    profile = find_fusion_profile(arguments.profile)
    advice = advise(profile, network, compressors, speed)
    if arguments.json:
        rows = [_plain_data(advice), *(_option_data(option) for option in advice.options)]
        data = {"problem": "cupcake", "profile": profile.name, "device": arguments.device, **_network_data(network)}
        best = min(rows, key=lambda row: row["iteration_s"])  # the plain buckets, where nothing is faster
        best = {key: best[key] for key in ("compressor", "plan", "iteration_s", "time_saved")}
        print_json({**data, "compute_s": profile.compute_s, "best": best, "rows": rows})
    elif not arguments.quiet:
        _print_advice(advice)
    return 0


def _plain_data(advice: Advice) -> dict[str, Any]:
    plain = advice.plain
    return {
        "compressor": "none", "plan": f"buckets of {plain.setting}", "ratio": 1.0, "collective": "all-reduce",
        "iteration_s": plain.iteration_s, "bound_s": None, "scaling": advice.plain_scaling, "time_saved": 0.0,
        "pays": None, "crossover_bytes_per_s": None, "groups": [list(group) for group in plain.fusion.groups],
    }  # fmt: skip


def _option_data(option: Option) -> dict[str, Any]:
    compressor, crossover = option.compressor, option.crossover_bytes_per_s
    limited = crossover is not None and 0 < crossover < math.inf
    return {
        "compressor": compressor.name, "plan": "best fusion", "ratio": compressor.ratio,
        "collective": "all-reduce" if compressor.all_reducible else "all-gather",
        "iteration_s": option.iteration_s, "bound_s": option.bound_s, "scaling": option.scaling,
        "time_saved": option.time_saved, "pays": _pays(crossover),
        "crossover_bytes_per_s": crossover if limited else None, "groups": [list(group) for group in option.groups],
    }  # fmt: skip


def _pays(crossover_bytes_per_s: float | None) -> str | None:
    if crossover_bytes_per_s is None:
        return None
    return {0.0: "never", math.inf: "always"}.get(crossover_bytes_per_s, "below")


def _print_advice(advice: Advice) -> None:
    from gapless.text import described, table

    lines = [["compressor", "plan", "groups", "iteration", "scaling", "time saved", "pays below"]]
    for row in (_plain_data(advice), *(_option_data(option) for option in advice.options)):
        limit = described("crossover_bytes_per_s", row["crossover_bytes_per_s"])
        pays = {"below": limit, None: "-"}.get(row["pays"], row["pays"])
        lines.append([
            row["compressor"], row["plan"], str(len(row["groups"])), described("iteration_s", row["iteration_s"]),
            f"{row['scaling']:.3f}", _percent(row["time_saved"]), str(pays),
        ])  # fmt: skip
    print(table(lines))
    best = advice.best
    if best is None:
        print("best: no compression, plain buckets")
    else:
        print(f"best: {best.compressor.name} in its best fusion, saves {_percent(best.time_saved)} of a step")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# -- what-if -----------------------------------------------------------------------------------------------------------


def _what_if(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import print_json
    from gapless.profiles.gradients.compressors import named_compressor
    from gapless.profiles.gradients.ddp_model import ddp_model
    from gapless.profiles.gradients.named import find_fusion_profile

    network, compressor = read_network(arguments), named_compressor(arguments.compressor)
    profile = find_fusion_profile(arguments.profile)
    model = ddp_model(profile, network)
    rows = _rows(arguments.figure, model, compressor)
    crossover = model.crossover_bytes_per_s(compressor)
    if arguments.json:
        data = {"problem": "cupcake", "profile": profile.name, "figure": arguments.figure, **_network_data(network)}
        plain = [{key: _finite(value) for key, value in row.items()} for row in rows]
        limit = crossover if 0 < crossover < math.inf else None
        data |= {"compressor": compressor.name, "pays": _pays(crossover), "crossover_bytes_per_s": limit}
        print_json({**data, "rows": plain})
    elif not arguments.quiet:
        _print_rows(rows)
        if arguments.figure != "ratio":
            print(_crossover_text(compressor.name, crossover))
    return 0


def _crossover_text(name: str, crossover_bytes_per_s: float) -> str:
    from gapless.units import format_bandwidth

    pays = _pays(crossover_bytes_per_s)
    return f"{name} {pays} pays" if pays != "below" else f"{name} pays below {format_bandwidth(crossover_bytes_per_s)}"


def _rows(figure: str, model: DdpModel, compressor: Any) -> Table:
    from gapless.profiles.gradients import ddp_model as tables

    if figure == "bandwidth":
        return tables.bandwidth_table(model, compressor, _BANDWIDTHS)
    if figure == "batch":
        return tables.batch_table(model, compressor, _BATCH_FACTORS)
    if figure == "compute":
        return tables.compute_table(model, compressor, _SPEEDS)
    if figure == "tradeoff":
        return tables.tradeoff_table(model, compressor, _TRADE_OFF_SPEEDS, _PENALTIES)
    return tables.ratio_table(model, _BATCH_FACTORS, (model.network.bytes_per_s,))


def _print_rows(rows: Table) -> None:
    from gapless.text import described, table

    titles = list(rows[0])
    words = [title.removesuffix("_bytes_per_s").removesuffix("_s").replace("_", " ") for title in titles]
    cells = [
        [_percent(row[title]) if title == "time_saved" else _short(described(title, row[title])) for title in titles]
        for row in rows
    ]
    print(table([words, *cells]))


def _short(text: str) -> str:
    """A number without the zeros behind the point."""
    return text.rstrip("0").rstrip(".") if "." in text and text[-1].isdigit() else text
