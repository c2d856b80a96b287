"""The command `pinlater`, which `python -m pinlater` is, too."""

import sys

from pinlater.supervision import start_signals

# They stop in order, and end with 0. So they do if they are stopped before they have begun.
_SERVICES = ("serve", "worker", "console")


def main() -> None:
    """The process's entry. Sets what signals do before all that takes time."""
    if next((word for word in sys.argv[1:] if not word.startswith("-")), "") in _SERVICES:
        start_signals.end_at_stop_signals(0)
    else:
        start_signals.end_process_one_at_sigterm()
    from pinlater.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
