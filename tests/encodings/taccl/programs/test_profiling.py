"""What `gapless profile links` says of costs that the noise hides."""

from gapless.encodings.taccl.programs.profiling import drowned_costs
from gapless.topologies.measured.machine import ClassRow


def costs(alpha_error_us: float | None, beta_us_per_mb: float) -> ClassRow:
    return ClassRow("inside of nodes", 2, 80.0, alpha_error_us, beta_us_per_mb, 50.0, 0.01, 9, 0)


def test_a_cost_whose_interval_holds_nothing_is_named_with_a_way_out() -> None:
    assert drowned_costs([costs(4.0, 200.0)]) == []
    (line,) = drowned_costs([costs(4.0, 0.0)])
    assert line.startswith("beta of links inside of nodes may as well be 0: ")
    assert line.endswith("larger --sizes")
    assert [line.split()[0] for line in drowned_costs([costs(90.0, 50.0)])] == ["alpha", "beta"]


def test_an_interval_that_is_not_known_yet_names_nothing() -> None:
    assert drowned_costs([costs(None, 200.0)]) == []
