"""Runs a command that the kernel kills when its parent ends, also if the parent is killed with SIGKILL.

    python -m ottla.cli.die_with_parent PARENT_PID COMMAND...

The command replaces this program, so it keeps the process id.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PARENT_IS_GONE = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if (
        sys.platform == "linux"
    ):  # other systems have no such signal: there a killed parent leaves its children
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    if os.getppid() != parent:  # it ended before the call above
        sys.exit(_PARENT_IS_GONE)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
