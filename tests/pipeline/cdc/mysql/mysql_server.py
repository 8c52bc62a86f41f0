"""A real MySQL for the tests of change capture: `mysqld` 9 from PATH, or Debian's packages without root.

Debian's releases have no MySQL, its unstable distribution has. The packages and all that they need, the C library too,
are fetched once into `.cache/mysql` from where this machine has its packages, and unpacked there; the server runs with
its own loader. An empty data folder is made once and copied, because making one takes seconds.
"""

import fcntl
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.pipeline.cdc.mysql.mariadb_server import PASSWORD, USER, MariaDb, run_command

CACHE = Path(__file__).parents[4] / ".cache" / "mysql"
PACKAGE, DISTRIBUTION = "mysql-server-core", "sid"
# The tests need tags and vectors. MariaDB's server may have the same name, and says so behind its version.
NEW_ENOUGH = re.compile(r"Ver (9|\d\d)\.(?!.*MariaDB)")
CAPTURED = (
    "--log-bin=binlog",
    "--server-id=11",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--binlog-row-metadata=FULL",
    # A killed process loses nothing that it has written; only a machine that fails does.
    "--sync-binlog=0",
    "--innodb-flush-log-at-trx-commit=2",
)
USERS = f"""
CREATE USER 'admin'@'%' IDENTIFIED BY 'admin';
GRANT ALL ON *.* TO 'admin'@'%' WITH GRANT OPTION;
CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT SELECT, LOCK TABLES, REPLICATION SLAVE ON *.* TO '{USER}'@'%';
"""


@dataclass(frozen=True)
class Installed:
    """`command` starts the server, with a loader of its own where its libraries are."""

    command: tuple[str, ...]
    base: Path

    def run(self, data: Path, *settings: str) -> list[str]:
        share = self.base / "share" / "mysql"
        return [
            *self.command,
            "--no-defaults",
            f"--user={os.environ.get('USER', 'root')}",
            f"--basedir={self.base}",
            f"--datadir={data}",
            f"--tmpdir={data.parent}",
            f"--lc-messages-dir={share}",
            f"--character-sets-dir={share / 'charsets'}",
            "--plugin-dir=/nonexistent",
            "--secure-file-priv=",
            "--innodb-buffer-pool-size=16M",
            "--innodb-redo-log-capacity=32M",
            "--innodb-doublewrite=OFF",
            *settings,
        ]


def why_no_mysql() -> str:
    found = find_mysql()
    return found if isinstance(found, str) else ""


@cache
def find_mysql() -> Installed | str:
    """The server's files, or the reason why there are none."""
    CACHE.mkdir(parents=True, exist_ok=True)
    on_path = shutil.which("mysqld")
    if on_path and NEW_ENOUGH.search(run_command([on_path, "--version"], CACHE)):
        return Installed((on_path,), Path(on_path).resolve().parents[1])
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "no mysqld 9 on PATH, and no apt-get and dpkg to fetch Debian's package with"
    with _locked():
        try:
            if not (CACHE / "complete").exists():
                _fetch()
            return _unpacked()
        except (OSError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", "") or str(error)
            return f"no mysqld 9 on PATH, and Debian's package could not be fetched: {detail.strip()[-300:]}"


@contextmanager
def _locked() -> Iterator[None]:
    """If two test workers come here at once, the second waits for the first and finds the files."""
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpacked() -> Installed:
    root = CACHE / "root"
    loader = next(root.glob("usr/lib/*-linux-gnu/ld-linux-*.so.*"), None)
    daemon = root / "usr/sbin/mysqld"
    if loader is None or not daemon.exists():
        raise OSError(f"Debian's package {PACKAGE} has no server that can be started")
    return Installed((str(loader), "--library-path", str(loader.parent), str(daemon)), root / "usr")


def _fetch() -> None:
    """With package lists of our own, so that the machine's stay as they are."""
    packages, apt = CACHE / "packages", CACHE / "apt"
    for folder in (packages, apt / "lists" / "partial", apt / "cache" / "archives" / "partial"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb {_archive()} {DISTRIBUTION} main\n")
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": os.environ.get("USER", "root"),
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    run_command(["apt-get", *options, "update"], packages)
    plan = run_command(
        ["apt-get", *options, "install", "--simulate", "--no-install-recommends", PACKAGE], packages
    )
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    run_command(["apt-get", *options, "download", *(name for name in names if "perl" not in name)], packages)
    for package in packages.glob("*.deb"):
        run_command(["dpkg", "-x", str(package), str(CACHE / "root")], packages)
    shutil.rmtree(packages)
    (CACHE / "complete").touch()


def _archive() -> str:
    """From where this machine has Debian's packages."""
    form = "$(ORIGIN) $(COMPONENT) $(REPO_URI)"
    for line in run_command(
        ["apt-get", "indextargets", "--format", form, "Created-By: Packages"], CACHE
    ).splitlines():
        origin, component, address = line.split(" ", 2)
        if (origin, component) == ("Debian", "main"):
            return address
    raise OSError("this machine's packages are not Debian's")


def _empty_data() -> Path:
    """A data folder with the users, made once for each version of the server."""
    version = run_command([*_installed().command, "--no-defaults", "--version"], CACHE)
    data = CACHE / f"data-{zlib.crc32(version.encode()):08x}"
    complete = data.with_suffix(".complete")
    with _locked():
        if not complete.exists():
            shutil.rmtree(data, ignore_errors=True)
            (CACHE / "users.sql").write_text(USERS)
            init = ("--initialize-insecure", "--skip-log-bin", f"--init-file={CACHE / 'users.sql'}")
            run_command(_installed().run(data, *init), CACHE)
            # Each server makes a UUID of its own.
            (data / "auto.cnf").unlink()
            complete.touch()
    return data


@dataclass
class MySql(MariaDb):
    """As MariaDb: `start` after `kill` brings it up again on the same port with the same data."""

    settings: tuple[str, ...] = CAPTURED

    def create(self) -> None:
        shutil.copytree(_empty_data(), self.data)

    def _server_command(self, *more: str) -> list[str]:
        quick = ("--mysqlx=OFF", "--performance-schema=OFF", "--socket=mysql.sock", "--pid-file=mysql.pid")
        return _installed().run(self.data, *self.settings, *more, "--skip-name-resolve", *quick)

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)


def _installed() -> Installed:
    installed = find_mysql()
    if isinstance(installed, str):
        raise RuntimeError(installed)
    return installed
