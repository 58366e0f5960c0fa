"""Whose account the other end of a connection is: within one machine the kernel knows both ends.

1. Linux is asked for the one socket that has our addresses the other way round: `by_netlink`, exact, in 20 us.
2. Where a sandbox forbids that, `by_table` looks for it in /proc/net/tcp and tcp6, which hold every socket.
3. A socket that a process still holds has an inode. One that was closed or reset has none, and says account 0 whoever
   opened it; so it is nobody's.
4. `asking` tries this on a connection of our own before anybody else's is judged: what does not know ours says nothing
   of theirs.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

Address = tuple[str, int]
"""A host as numbers, and a port."""
Ask = Callable[[Address, Address], int | None]
"""The account (uid) that holds the socket at the first address, connected to the second; None: none does, or it is not
known. OSError where the system does not answer."""
ROOT = 0
"""It reads the memory of any process, so no token keeps it out."""
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
READINGS = 2
"""Of a table that is not there: rows are skipped when others go while it is read."""
_SOCK_DIAG, _BY_FAMILY = 4, 20
"""NETLINK_SOCK_DIAG and SOCK_DIAG_BY_FAMILY of linux/sock_diag.h."""
_HEADER, _WANTED, _ENDS, _ANSWER = struct.Struct("=IHHII"), struct.Struct("=BBBxI"), "!HH16s16s", "=4B"
_OF_THE_INTERFACE = struct.pack("=I2I", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""Any interface, and no cookie of an earlier answer."""


def is_ours(account: int | None) -> bool:
    """Is it the account of this process, or root's?"""
    return account in (ROOT, os.geteuid())


def by_netlink(end: Address, to: Address) -> int | None:
    """What sock_diag(7) says of exactly this socket."""
    if sys.platform != "linux":
        raise OSError("this system has no sock_diag")
    ends = struct.pack(_ENDS, end[1], to[1], _packed(end[0]), _packed(to[0])) + _OF_THE_INTERFACE
    family = socket.AF_INET if len(_packed(end[0])) == 4 else socket.AF_INET6
    asked = _WANTED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, 1, 1, 0) + asked)
        answer = kernel.recv(4096, socket.MSG_DONTWAIT)  # it answers within the call
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    _, port = struct.unpack_from("!HH", answer, _HEADER.size + 4)
    account, inode = struct.unpack_from("=2I", answer, _HEADER.size + 64)
    return account if inode and port == to[1] else None  # where none is connected, it names one that listens


def by_table(end: Address, to: Address) -> int | None:
    """What the kernel's tables of sockets say, as text; 4 ms a table that has room for 262,144 connections."""
    for table in TABLES * READINGS:
        if (account := holder(table.read_text("ascii"), end, to)) is not None:
            return account
    return None


def holder(table: str, end: Address, to: Address, order: str = sys.byteorder) -> int | None:
    """The account of a row of /proc/net/tcp or tcp6; each 32 bits of an address are a number in the machine's `order`.

    Source: Documentation/networking/proc_net_tcp.rst of Linux.
    """
    wanted = [(_packed(host), port) for host, port in (end, to)]
    for line in table.splitlines()[1:]:
        _, here, there, _, _, _, _, account, _, inode, *_ = line.split()
        if [_written(here, order), _written(there, order)] == wanted and inode != "0":
            return int(account)
    return None


WAYS: tuple[Ask, ...] = (by_netlink, by_table)


def asking(address: str) -> Ask | None:
    """The first way that knows a connection of our own at this address of this machine; None where none does."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as ours,
    ):
        end, to = ours.getsockname()[:2], ours.getpeername()[:2]
        return next((way for way in WAYS if _knows(way, end, to)), None)


def _knows(way: Ask, end: Address, to: Address) -> bool:
    try:
        return way(end, to) == os.geteuid()
    except OSError:
        return False


def _packed(host: str) -> bytes:
    """4 or 16 bytes; an IPv4 address that is written as an IPv6 one is the same address."""
    found = ipaddress.ip_address(host)
    return (getattr(found, "ipv4_mapped", None) or found).packed


def _written(text: str, order: str) -> tuple[bytes, int]:
    """0100007F:1F90 of a little-endian machine is 127.0.0.1, port 8080."""
    host, _, port = text.partition(":")
    numbers = bytes.fromhex(host)
    if order == "little":
        numbers = b"".join(numbers[i : i + 4][::-1] for i in range(0, len(numbers), 4))
    return _packed(str(ipaddress.ip_address(numbers))), int(port, 16)
