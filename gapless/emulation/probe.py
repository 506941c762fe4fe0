"""A lone transfer on an emulated cluster: what it has of the bandwidth says how quiet the machine is.

The file is also what each rank runs: the last one receives, the first one sends to it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.emulation.cluster import Cluster

__all__ = ["lone_transfer"]

_PORT = 5000
_SIZE_BYTES, _FIRST_BYTES = 2**21, 2**18
"""What is sent, and what of it isn't timed: until then the token buckets let pass what they have saved up."""
_TIMEOUT_S = 300.0


def lone_transfer(cluster: Cluster) -> float:
    """Measured over emulated bandwidth, of a lone transfer from the first rank to the last.

    Raises `TimeoutError` where there is no end of it.
    """
    last = cluster.topology.device_count - 1
    ended = cluster.run([sys.executable, __file__, cluster.address(last)], _TIMEOUT_S)
    return float(ended[last].out) / cluster.bytes_per_s(0, last)


def _receive() -> None:
    """Print the bandwidth, bytes/s."""
    connection, _ = socket.create_server(("", _PORT)).accept()
    received, begin_s, begun, end_s = 0, None, 0, 0.0
    while data := connection.recv(1 << 16):
        received += len(data)
        if begin_s is None and received >= _FIRST_BYTES:
            begin_s, begun = time.perf_counter(), received
        end_s = time.perf_counter()
    assert begin_s is not None
    print((received - begun) / (end_s - begin_s))


def _send(address: str) -> None:
    end_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            connection = socket.create_connection((address, _PORT))
            break
        except ConnectionRefusedError:  # nobody listens yet
            if time.monotonic() > end_s:
                raise
            time.sleep(0.01)
    connection.sendall(bytes(_SIZE_BYTES))
    connection.close()


if __name__ == "__main__":
    rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
    if rank == last:
        _receive()
    elif rank == 0:
        _send(sys.argv[1])
