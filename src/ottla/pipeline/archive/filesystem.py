"""Reads the files of an archive in Python, without Java: local folders, S3, and HDFS."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import LocalFiles, ReadableFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Hadoop's settings of S3, under their own names.
S3A = (
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.endpoint",
    "fs.s3a.endpoint.region",
    "fs.s3a.connection.ssl.enabled",
)


def credentials(spark: "SparkSession", path: str) -> dict[str, str]:
    """The settings that a path needs, from Spark's."""
    if not path.startswith("s3a://"):
        return {}
    session: Any = spark
    conf = session._jsc.hadoopConfiguration()
    return {name: str(value) for name in S3A if (value := conf.get(name)) is not None}


def open_filesystem(path: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """pyarrow's file system for a path, and the path in it."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return fs.LocalFileSystem(), path
    if scheme == "file":
        return fs.LocalFileSystem(), rest
    try:
        if scheme == "s3a":
            return _s3({name.lower(): value for name, value in options.items()}), rest
        system, path_in = fs.FileSystem.from_uri(path)
        return system, path_in
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"The archive {path} cannot be read by Python: {error}.",
            "Python reads local folders, s3a://, and, if libhdfs is installed where it runs, hdfs://.",
        ) from error


def _s3(options: Mapping[str, str]) -> Any:
    endpoint = options.get("fs.s3a.endpoint")
    is_plain = options.get("fs.s3a.connection.ssl.enabled") == "false" or (endpoint or "").startswith(
        "http://"
    )
    return fs.S3FileSystem(
        access_key=options.get("fs.s3a.access.key"),
        secret_key=options.get("fs.s3a.secret.key"),
        session_token=options.get("fs.s3a.session.token"),
        region=options.get("fs.s3a.endpoint.region"),
        endpoint_override=(endpoint or "").rpartition("://")[2] or None,
        scheme="http" if is_plain else "https",
    )


class _ArrowFiles:
    """The manifests of an archive, read through pyarrow."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._root = root.rstrip("/")
        self._fs, self._path = open_filesystem(self._root, options)

    def url(self, path: str = "") -> str:
        return f"{self._root}/{path}"

    def names(self, folder: str) -> list[str]:
        selector = fs.FileSelector(f"{self._path}/{folder}", allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector))

    def read(self, path: str) -> str:
        with self._fs.open_input_stream(f"{self._path}/{path}") as stream:
            return bytes(stream.readall()).decode()


def readable_files(path: str, options: Mapping[str, str]) -> ReadableFiles:
    return _ArrowFiles(path, options) if "://" in path else LocalFiles(path)
