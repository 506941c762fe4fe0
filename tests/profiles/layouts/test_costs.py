"""Times of collectives on a mesh's axes, and of changes of layout."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.devices import named_device
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.layouts.changes import Changes, even_layouts
from gapless.profiles.layouts.costs import MeshCosts, axis_groups, mesh_costs
from gapless.profiles.layouts.tables import FORBIDDEN
from gapless.profiles.layouts.transitions import steps_between
from gapless.topologies.files import load_topology

ALPHA_S, BYTES_PER_S = 1e-6, 1e9
DEVICE = named_device("h100")
COSTS = MeshCosts((FlatNetwork(2, BYTES_PER_S, ALPHA_S), FlatNetwork(4, BYTES_PER_S, 2 * ALPHA_S)), DEVICE)
SHAPE = (8, 16)
SIZE = 4 * 8 * 16


def _between(before: str, after: str) -> int:
    return int(Changes(SHAPE, 4, COSTS).between([before], [after])[0, 0])


def test_collectives_take_a_launch_and_latency_and_bytes_of_a_ring() -> None:
    gathered_s = SIZE / 2 / BYTES_PER_S + ALPHA_S
    assert _between("S0,R", "R,R") == math.ceil((DEVICE.launch_s + gathered_s) * 1e9)
    assert _between("P,R", "S0,R") == math.ceil((DEVICE.launch_s + gathered_s) * 1e9)
    assert _between("P,R", "R,R") == math.ceil((DEVICE.launch_s + 2 * gathered_s) * 1e9)
    exchanged_s = 3 * (SIZE / 4 / 4 / BYTES_PER_S + 2 * ALPHA_S)
    assert _between("R,S0", "R,S1") == math.ceil((DEVICE.launch_s + exchanged_s) * 1e9)


def test_what_nothing_leads_to_is_forbidden() -> None:
    assert _between("S0,R", "S0,R") == 0
    assert _between("S0,R", "P,R") < FORBIDDEN  # put together, then terms of a sum
    assert _between("P,R", "P(avg),R") >= FORBIDDEN
    assert 0 < _between("R,R", "S0,R") < _between("S0,R", "R,R")


def test_a_change_costs_what_its_cheapest_steps_do() -> None:
    changes = Changes(SHAPE, 4, COSTS)
    for before in ("S0,S0", "S0,S1", "P,S0", "R,S1"):
        for after in ("R,R", "S1,S0", "S0,R", "R,S0"):
            steps = steps_between(before, after, SHAPE, 4, (2, 4), COSTS.step_s)
            told = math.ceil(sum(COSTS.step_s(step) for step in steps) * 1e9 - 1e-6)
            assert abs(int(changes.between([before], [after])[0, 0]) - told) <= 1


def test_axes_join_devices_row_by_row() -> None:
    assert axis_groups((2, 3), 0).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert axis_groups((2, 3), 1).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_an_axis_between_nodes_is_slower_and_all_its_groups_share_interfaces() -> None:
    costs = mesh_costs(load_topology("ndv2", 2), (2, 8), DEVICE)
    alone = mesh_costs(load_topology("ndv2", 2), (1, 8), DEVICE)
    assert costs.networks[1].bytes_per_s > 10 * costs.networks[0].bytes_per_s
    assert costs.networks[1] == alone.networks[1]
    nic = load_topology("ndv2", 2)
    between = [link for link in nic.links if nic.node_of_device[link.source] != nic.node_of_device[link.target]]
    assert np.isclose(costs.networks[0].bytes_per_s * 8, 1 / between[0].beta_s_per_byte)


def test_a_mesh_larger_than_its_topology_is_refused() -> None:
    with pytest.raises(InputError, match="at most the 8 devices of topology dgx-h100 x 1, got 16"):
        mesh_costs(load_topology("dgx-h100", 1), (2, 8), DEVICE)


def test_layouts_are_even() -> None:
    assert even_layouts((4, 3), (2, 2)) == ["R,R", "R,S0", "S0,R", "S0,S0"]
    assert even_layouts((2, 2), (2, 2)) == ["R,R", "R,S0", "R,S1", "S0,R", "S0,S1", "S1,R", "S1,S0"]
    assert even_layouts((), (2,)) == ["R"]
