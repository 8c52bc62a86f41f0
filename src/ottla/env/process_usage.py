"""What the operating system says about this process."""

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc/self")
# Fields of /proc/self/stat after the name of the process.
_USER_TICKS, _SYSTEM_TICKS, _START_TICKS = 11, 12, 19


class ProcessUsage(NamedTuple):
    cpu_s: float
    started_s: float  # since the Unix epoch
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int


def read_process_usage() -> ProcessUsage | None:
    """None if the system has no /proc. For a thread: a process with many open files takes some milliseconds."""
    try:
        stat = (_PROC / "stat").read_text().rpartition(")")[2].split()
        virtual, resident, *_ = map(int, (_PROC / "statm").read_text().split())
        open_files = len(os.listdir(_PROC / "fd"))
    except OSError:
        return None
    ticks_per_s, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return ProcessUsage(
        cpu_s=(int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS])) / ticks_per_s,
        started_s=round(booted_s + int(stat[_START_TICKS]) / ticks_per_s, 1),
        resident_bytes=resident * page_bytes,
        virtual_bytes=virtual * page_bytes,
        open_files=open_files,
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
