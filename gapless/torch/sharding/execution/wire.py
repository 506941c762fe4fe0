"""What this process has sent over its TCP connections, as the kernel counts it. Linux."""

from __future__ import annotations

import os
import socket
import struct
import sys

__all__ = ["sent_on_sockets"]

_ACKED_AT = 120
"""Where `tcpi_bytes_acked` is in the kernel's `struct tcp_info`."""
_INFO_BYTES = 256


def sent_on_sockets() -> int | None:
    """Bytes that others have received from this process on connections that are open, None where nobody counts them."""
    if sys.platform != "linux":
        return None
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                total += _acked(connection)
        except OSError:  # it has been closed since
            continue
    return total


def _acked(connection: socket.socket) -> int:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return 0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    acked: int = struct.unpack_from("Q", info, _ACKED_AT)[0] if len(info) >= _ACKED_AT + 8 else 0
    return acked
