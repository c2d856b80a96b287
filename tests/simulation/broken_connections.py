"""Connections of a simulated network that break between two hosts, without an end of either process."""

from __future__ import annotations

from pinlater.simulation.network import Network


def break_connections(network: Network, host: str, *, told: bool) -> None:
    """Ends the connections of a host; `told`: both sides learn of it at once, else neither does."""
    for one in [one for one in network.connections if host in (one.near.loop.host, one.far.loop.host)]:
        for end in (one.near, one.far):
            if told:
                end.break_off(ConnectionResetError(104, "Connection reset by peer"))
            else:
                end.black_hole = True


def end_half_open(network: Network) -> None:
    """Both sides of half-open connections learn that these are broken, as from a kernel that gives up."""
    for one in list(network.connections):
        if one.near.black_hole or one.far.black_hole:
            for end in (one.near, one.far):
                end.break_off(ConnectionResetError(110, "Connection timed out"))
