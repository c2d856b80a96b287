"""Says whether the Python that runs it was built with profile-guided optimization: by its exit code, 0 if so. For any Python 3."""

import sys
from sysconfig import get_config_var

HINT = "built without profile-guided optimization: about a tenth slower"


def is_optimized() -> bool:
    """Debian does not build it by the usual option, and leaves the flag empty that the option would use."""
    return "--enable-optimizations" in (get_config_var("CONFIG_ARGS") or "") or not get_config_var("PGO_PROF_USE_FLAG")


if __name__ == "__main__":
    sys.exit(not is_optimized())
