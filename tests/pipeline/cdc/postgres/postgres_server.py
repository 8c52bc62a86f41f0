"""A real PostgreSQL for the tests of change capture: `initdb` and `postgres` from PATH, ended by pid.

PostgreSQL does not run as root: then it runs as `nobody`, with its data in a folder of that user's.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
from tests.interop.brokers import free_ports

START_TIMEOUT_S = 60
ADMIN, PASSWORD = "admin", "admin-secret"


def why_no_postgres() -> str:
    missing = [name for name in ("initdb", "postgres") if shutil.which(name) is None]
    return f"no {' and '.join(missing)} on PATH" if missing else ""


def other_user() -> dict[str, Any]:
    return {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}


@dataclass
class Postgres:
    """A server process. `start` after `kill` brings it up again on the same port with the same data."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ottla-postgres-")))
    port: int = field(default_factory=lambda: free_ports(1)[0])
    wal_level: str = "logical"
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def create(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (self.folder, password):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        subprocess.run(
            [
                *("initdb", "-D", str(self.folder / "data"), "-U", ADMIN, f"--pwfile={password}"),
                *("-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            cwd=self.folder,
            capture_output=True,
            timeout=START_TIMEOUT_S,
            check=True,
            **other_user(),
        )

    def start(self) -> None:
        """Returns when it takes connections.

        After `kill` the server ends at once as long as helpers of the killed one use its shared memory. On a busy
        machine they take a while to notice.
        """
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            if self.process is None or self.process.poll() is not None:
                self.process = self._launch()
            with suppress(psycopg2.OperationalError), closing(self.connect()):
                return
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'server.log').read_text()[-3000:]}")

    def _launch(self) -> "subprocess.Popen[bytes]":
        settings = {
            "wal_level": self.wal_level,
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "fsync": "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                ["postgres", "-D", str(self.folder / "data"), *options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **other_user(),
            )

    def kill(self) -> None:
        """kill -9. Its helpers end by themselves when they see it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self) -> Any:
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, dbname="postgres", user=ADMIN, password=PASSWORD
        )
        connection.autocommit = True
        return connection

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last statement."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
