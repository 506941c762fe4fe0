"""The names of the devices of a lowered run."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.device_names import device_names
from gapless.encodings.bagpipe.lowering import SERVERS, Machine
from gapless.errors import InputError
from gapless.topologies.topology import Topology


def test_names_stand_in_the_order_of_the_machine() -> None:
    machine = Machine(Cluster(trainers=3), np.array([1, 1, 1]), 10)
    names = device_names(machine.topology())
    assert names[SERVERS] == "servers"
    assert names[machine.replicas] == "replicas"
    assert [names[machine.trainer(k)] for k in range(3)] == ["trainer 0", "trainer 1", "trainer 2"]
    assert names[machine.buffer(2)] == "input of trainer 2"
    assert len(names) == machine.topology().device_count


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_other_topologies_are_refused(devices: int) -> None:
    with pytest.raises(InputError, match="two devices a trainer"):
        device_names(Topology("other", (0,) * devices))
