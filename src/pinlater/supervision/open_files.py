"""How many files, including sockets, this process may open."""

from __future__ import annotations

import contextlib
import resource


def raise_open_files() -> int:
    """Raises the soft limit to the hard one, if the system allows it. Returns the limit; 2^63 - 1 if there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return 2**63 - 1 if soft == resource.RLIM_INFINITY else soft
