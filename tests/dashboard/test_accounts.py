"""Whose a connection is: rows of the kernel's tables as they are written, and a connection of our own."""

from __future__ import annotations

import os
import socket

import pytest

from dashboard import accounts

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LOCAL, SERVER = ("127.0.0.1", 0xC350), ("127.0.0.1", 0x2135)
LOCAL6, SERVER6 = ("2001:db8::7", 0xC350), ("::1", 0x2135)
MAPPED, MAPPED_SERVER = ("::ffff:127.0.0.1", 0xC350), ("::ffff:127.0.0.1", 0x2135)
LITTLE6, BIG6 = "B80D0120000000000000000007000000:C350", "20010DB8000000000000000000000007:C350"
ONE_LITTLE, ONE_BIG = "00000000000000000000000001000000:2135", "00000000000000000000000000000001:2135"


def row(here: str, there: str, account: int = 1001, inode: int = 4711, state: str = "01") -> str:
    rest = f"1 000000006f271079 20 4 30 10 -1{' ' * 12}"
    return f"   0: {here} {there} {state} 00000000:00000000 00:00000000 00000000 {account:5}        0 {inode} {rest}\n"


OURS, THEIRS = row("0100007F:C350", "0100007F:2135"), row("0100007F:2135", "0100007F:C350", 1002)


@pytest.mark.parametrize(
    ("rows", "end", "to", "order", "account"),
    [
        pytest.param(OURS, LOCAL, SERVER, "little", 1001, id="IPv4"),
        pytest.param(row("7F000001:C350", "7F000001:2135"), LOCAL, SERVER, "big", 1001, id="IPv4, big-endian"),
        pytest.param(OURS, LOCAL, SERVER, "big", None, id="the other order is another machine"),
        pytest.param(row(LITTLE6, ONE_LITTLE), LOCAL6, SERVER6, "little", 1001, id="IPv6, of four numbers"),
        pytest.param(row(BIG6, ONE_BIG), LOCAL6, SERVER6, "big", 1001, id="IPv6, big-endian"),
        pytest.param(row(BIG6, ONE_BIG), LOCAL6, SERVER6, "little", None, id="IPv6 of the other order"),
        pytest.param(row("0000000000000000FFFF00000100007F:C350", "0000000000000000FFFF00000100007F:2135"), LOCAL,
                     SERVER, "little", 1001, id="IPv4 written as IPv6 in the table"),
        pytest.param(row("00000000000000000000FFFF7F000001:C350", "00000000000000000000FFFF7F000001:2135"), LOCAL,
                     SERVER, "big", 1001, id="IPv4 written as IPv6 in the table, big-endian"),
        pytest.param(OURS, MAPPED, MAPPED_SERVER, "little", 1001, id="IPv4 written as IPv6 by the server"),
        pytest.param(THEIRS + OURS, LOCAL, SERVER, "little", 1001, id="not our own end of it"),
        pytest.param(THEIRS, LOCAL, SERVER, "little", None, id="our own end alone"),
        pytest.param(row("0100007F:C351", "0100007F:2135") + row("0100007F:C350", "0100007F:2136")
                     + row("0200007F:C350", "0100007F:2135"), LOCAL, SERVER, "little", None, id="its neighbours"),
        pytest.param(row("0100007F:C350", "00000000:0000", state="0A"), LOCAL, SERVER, "little", None, id="listens"),
        pytest.param(row("0100007F:C350", "0100007F:2135", 0, 0, "06"), LOCAL, SERVER, "little", None, id="closed"),
        pytest.param(row("0100007F:C350", "0100007F:2135", 0), LOCAL, SERVER, "little", 0, id="root's"),
        pytest.param("", LOCAL, SERVER, "little", None, id="empty"),
    ],
)  # fmt: skip
def test_a_table_of_connections(
    rows: str, end: accounts.Address, to: accounts.Address, order: str, account: int | None
) -> None:
    assert accounts.holder(HEAD + rows, end, to, order) == account


def test_both_ways_know_our_own_connection() -> None:
    if accounts.asking("127.0.0.1") is None:
        pytest.skip("this system tells nobody's account: macOS, or a sandbox without both sock_diag and /proc/net/tcp")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        end, to = ours.getsockname(), ours.getpeername()
        assert {way(end, to) for way in accounts.WAYS} == {os.geteuid()}
        assert {way(end, ("127.0.0.1", to[1] + 1)) for way in accounts.WAYS} == {None}
        assert {way(to, ("127.0.0.1", end[1] ^ 1)) for way in accounts.WAYS} == {None}  # where somebody listens
        ours.close()
        assert {way(end, to) for way in accounts.WAYS} == {None}
