"""Ctrl-C while the command `pgbm-plugin` starts or ends: no traceback, and exit code 130.

The package imports this module before all others, because most of the first second goes into imports. It imports
almost nothing itself.
"""

from __future__ import annotations

import os
import signal
import sys


def end_quietly(*args: object) -> None:
    """End the process at once, as a handler of SIGINT; there is nothing to clean up yet, or no more."""
    try:
        os.write(2, b"pgbm-plugin: interrupted\n")
    finally:
        os._exit(130)


def is_command() -> bool:
    """Tell whether this process is the command `pgbm-plugin` or `python -m pgbm_plugin`."""
    words = sys.orig_argv
    is_module = any(words[i : i + 2] == ["-m", "pgbm_plugin"] for i in range(len(words)))
    return is_module or any(os.path.basename(word) in ("pgbm-plugin", "pgbm-plugin.exe") for word in sys.argv[:1])


# a command that was started in the background ignores SIGINT, and this must stay so
if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_quietly)
