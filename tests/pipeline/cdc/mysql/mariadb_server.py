"""A real MariaDB for the tests of change capture: `mariadbd` from PATH, or Debian's packages without root.

The packages are fetched once into `.cache/mariadb` and unpacked there. A server keeps its data in a test's folder,
listens on a free port of this machine and is ended by its pid.
"""

import fcntl
import os
import shutil
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pymysql
from tests.interop.brokers import free_ports

CACHE = Path(__file__).parents[4] / ".cache" / "mariadb"
PACKAGE = "mariadb-server-core"
FETCH_TIMEOUT_S = 300
START_TIMEOUT_S = 60
USER, PASSWORD = "capture", "capture-secret"
# The settings that a capture needs, except sync_binlog, which would make the tests slow.
CAPTURED = (
    "--log-bin=binlog",
    "--server-id=11",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    # A killed process loses nothing that it has written; only a machine that fails does.
    "--sync-binlog=0",
    "--innodb-flush-log-at-trx-commit=2",
)


@dataclass(frozen=True)
class Installed:
    daemon: Path
    share: Path
    libraries: str = ""

    def environment(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": self.libraries} if self.libraries else dict(os.environ)


def why_no_mariadb() -> str:
    found = find_mariadb()
    return found if isinstance(found, str) else ""


@cache
def find_mariadb() -> Installed | str:
    """The server's files, or the reason why there are none."""
    on_path = shutil.which("mariadbd") or next(
        (str(path) for path in [Path("/usr/sbin/mariadbd")] if path.exists()), None
    )
    if on_path:
        share = Path(on_path).resolve().parents[1] / "share" / "mysql"
        if (share / "mysql_system_tables.sql").exists():
            return Installed(Path(on_path), share)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "no mariadbd on PATH, and no apt-get and dpkg to fetch Debian's package with"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # If two test workers come here at once, the second waits for the first and finds the files.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _unpacked() or _fetch()


def _unpacked() -> Installed | None:
    root = CACHE / "root"
    if not (CACHE / "complete").exists():
        return None
    libraries = [str(path) for path in (*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu"))]
    return Installed(root / "usr/sbin/mariadbd", root / "usr/share/mysql", ":".join(libraries))


def _fetch() -> Installed | str:
    """The package and those of its libraries that this machine lacks."""
    packages = CACHE / "packages"
    shutil.rmtree(packages, ignore_errors=True)
    packages.mkdir()
    try:
        plan = run_command(["apt-get", "install", "--simulate", "--no-install-recommends", PACKAGE], packages)
        names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        run_command(["apt-get", "download", *(names or [PACKAGE])], packages)
        for package in packages.glob("*.deb"):
            run_command(["dpkg", "-x", str(package), str(CACHE / "root")], packages)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        return f"no mariadbd on PATH, and Debian's package could not be fetched: {detail.strip()[-300:]}"
    (CACHE / "complete").touch()
    found = _unpacked()
    return found if found is not None else f"Debian's package {PACKAGE} has no server"


def run_command(command: list[str], folder: Path) -> str:
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=True
    )
    return ran.stdout


@dataclass
class MariaDb:
    """A server process. `start` after `kill` brings it up again on the same port with the same data."""

    folder: Path
    settings: tuple[str, ...] = CAPTURED
    port: int = field(default_factory=lambda: free_ports(1)[0])
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def create(self) -> None:
        """An empty data folder with the system tables, and the user who captures changes."""
        installed = _installed()
        (self.data / "mysql").mkdir(parents=True)
        share = installed.share
        script = "create database if not exists test;\nuse mysql;\n" + "".join(
            (share / name).read_text()
            for name in (
                "mysql_system_tables.sql",
                "mysql_performance_tables.sql",
                "mysql_system_tables_data.sql",
            )
        )
        grants = (
            "flush privileges;\ncreate user 'admin'@'%' identified by 'admin';\n"
            "grant all on *.* to 'admin'@'%' with grant option;\n"
            f"create user '{USER}'@'%' identified by '{PASSWORD}';\n"
            f"grant select, replication slave on *.* to '{USER}'@'%';\n"
        )
        subprocess.run(
            [*self._command(), "--bootstrap", "--skip-log-bin"],
            input=(script + grants).encode(),
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "bootstrap.log").open("wb"),
            env=installed.environment(),
            timeout=START_TIMEOUT_S,
            check=True,
        )

    def start(self, *more: str) -> None:
        """Returns when it accepts connections."""
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._server_command(*more, f"--port={self.port}", "--bind-address=127.0.0.1"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            with suppress(pymysql.OperationalError), closing(self.connect()):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(
            f"{type(self).__name__} did not start:\n{(self.folder / 'server.log').read_text(errors='replace')[-3000:]}"
        )

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def connect(self, **settings: Any) -> "pymysql.Connection[Any]":
        defaults = {"host": "127.0.0.1", "port": self.port, "user": "admin", "password": "admin"}
        return pymysql.connect(
            **{**defaults, "charset": "utf8mb4", "autocommit": True, "ssl_disabled": True, **settings}
        )

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last statement."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def _server_command(self, *more: str) -> list[str]:
        return [*self._command(), *self.settings, *more]

    def _environment(self) -> dict[str, str]:
        return _installed().environment()

    def _command(self) -> list[str]:
        installed = _installed()
        return [
            str(installed.daemon),
            "--no-defaults",
            f"--user={os.environ.get('USER', 'root')}",
            f"--datadir={self.data}",
            # A folder of its own: a server that starts removes all temporary tables there, also those of others.
            f"--tmpdir={self.folder}",
            f"--lc-messages-dir={installed.share}",
            f"--character-sets-dir={installed.share / 'charsets'}",
            "--socket=mariadb.sock",
            "--pid-file=mariadb.pid",
            "--plugin-dir=/nonexistent",
            "--innodb-buffer-pool-size=16M",
            "--innodb-log-file-size=8M",
            "--performance-schema=OFF",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
        ]


def _installed() -> Installed:
    installed = find_mariadb()
    if isinstance(installed, str):
        raise RuntimeError(installed)
    return installed
