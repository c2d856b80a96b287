"""The command `pinlater`, which `python -m pinlater` is, too."""

import sys

from pinlater.supervision import start_signals

# They stop in order, and end with 0. So they do if they are stopped before they have begun.
_SERVICES = ("serve", "worker", "console")
_NO_SERVICES = (["worker", "list"], ["worker", "cron"])


def main() -> None:
    """The process's entry. Sets what signals do before all that takes time."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")][:2]
    if words and words[0] in _SERVICES and words not in _NO_SERVICES:
        start_signals.end_at_stop_signals(0)
    else:
        start_signals.end_process_one_at_sigterm()
    from pinlater.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
