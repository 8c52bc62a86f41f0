"""A process that changes an archive and is killed at each of its file operations, one after the other.

`python -m tests.unit.pipeline.archive.killed_process MODULE:FUNCTION TEMPLATE FOLDER SEED` calls the function with a
copy of TEMPLATE in FOLDER, and kills the process (SIGKILL) before its first operation, with another copy before its
second, and so on until it ends by itself. Each copy is a folder NUMBER-killed. It is copied to NUMBER-again, where the
function is killed once more, at a random operation, and then runs to its end.
"""

import importlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

ROOT = Path(__file__).parents[4]
TIMEOUT_S = 240
# that change something, as Python audits them
OPERATIONS = ("os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")
OVER = 10_000


class Killed(NamedTuple):
    """The folder as the killed process left it, and a copy after the function ran to its end."""

    folder: Path
    again: Path


def killed_everywhere(function: Callable[[str], None], template: Path, folder: Path) -> list[Killed]:
    """One for each file operation of the function."""
    folder.mkdir()
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    name = f"{function.__module__}:{function.__name__}"
    command = [
        sys.executable,
        "-m",
        "tests.unit.pipeline.archive.killed_process",
        name,
        str(template),
        str(folder),
        str(seed),
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=TIMEOUT_S)
    return [
        Killed(path, path.with_name(path.name.replace("killed", "again")))
        for path in sorted(folder.glob("*-killed"))
    ]


def main(name: str, template: str, target: str, seed: str) -> None:
    sys.dont_write_bytecode = True
    module, _, function = name.partition(":")
    change: Callable[[str], None] = getattr(importlib.import_module(module), function)
    chance = random.Random(int(seed))
    for survived in itertools.count():
        killed, again = Path(target, f"{survived:04}-killed"), Path(target, f"{survived:04}-again")
        shutil.copytree(template, killed)
        is_over = not is_killed(change, killed, survived)
        shutil.copytree(killed, again)
        is_killed(change, again, chance.randrange(survived + 1))
        assert not is_killed(change, again, OVER)
        if is_over:
            return


def is_killed(change: Callable[[str], None], folder: Path, survived: int) -> bool:
    """Whether it was. The other end is that of the function; an error in it is an error here."""
    assert threading.active_count() == 1
    pid = os.fork()
    if pid == 0:
        exit_code = 1
        try:
            count_operations(survived)
            change(str(folder))
            exit_code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(exit_code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def count_operations(survived: int) -> None:
    """Kills this process before the operation after so many."""
    steps = itertools.count()

    def step() -> None:
        if next(steps) == survived:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            step()

    open_file = Path.open

    def open_stepwise(path: Path, mode: str = "r", *given: Any, **named: Any) -> Any:
        file = open_file(path, mode, *given, **named)
        return Stepwise(file, step) if "w" in mode else file

    Path.open = open_stepwise  # type: ignore[assignment, method-assign]
    # What was written survives the end of its process without it, and a disk needs time for it.
    os.fsync = lambda fd: None
    sys.addaudithook(audit)


class Stepwise:
    """A file whose content is written in two operations."""

    def __init__(self, file: IO[bytes], step: Callable[[], None]) -> None:
        self._file = file
        self._step = step

    def write(self, data: bytes) -> None:
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._step()
            self._file.write(part)
            self._file.flush()

    def __enter__(self) -> "Stepwise":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
