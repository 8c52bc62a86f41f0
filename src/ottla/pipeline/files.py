"""The few file operations that archives and checkpoints need, on a local folder or any file system of Hadoop's.

A local folder needs no Java, so it can be read without Spark.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.pipeline import durable_files
from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An object store with a conditional put, which does not replace an object. With `overwrite=False` alone S3A checks and
# then puts, and of two writers at once the second wins (HADOOP-19256).
_PUT_IF_ABSENT = "fs.option.create.conditional.overwrite"
# If a stream can be aborted, its file appears only when it is closed: a single put to an object store.
_APPEARS_WHEN_CLOSED = "fs.capability.outputstream.abortable"
_ALREADY_EXISTS = ("FileAlreadyExists", "PreconditionFailed", "ConditionalRequestConflict")
_LISTINGS_MAX = 10
_RENAME_OPTION = "org.apache.hadoop.fs.Options$Rename"


class FoundFile(NamedTuple):
    path: str
    bytes: int


class ReadableFiles(Protocol):
    """Files below a folder; every path is relative to it."""

    def url(self, path: str = "") -> str:
        """The URL for Spark."""
        ...

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder; empty if it does not exist."""
        ...

    def read(self, path: str) -> str:
        """Raises FileNotFoundError if it does not exist."""
        ...


class Files(ReadableFiles, Protocol):
    def read_bytes(self, path: str) -> bytes:
        """Raises FileNotFoundError if it does not exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def below(self, folder: str) -> list[FoundFile]:
        """All files below a folder, sorted by path; empty if it does not exist.

        Files that are created or deleted meanwhile need not be in it.
        """
        ...

    def create(self, path: str, content: str | bytes) -> bool:
        """Writes a file completely or not at all. False, without a change, if it exists already."""
        ...

    def make_folder(self, path: str) -> None: ...

    def modified_s(self, path: str) -> float:
        """When the file was written last, in seconds since 1970."""
        ...

    def move(self, source: str, target: str) -> None:
        """Replaces `target` if it exists."""
        ...

    def delete(self, path: str) -> None:
        """Deletes a file, or a folder with its content. It need not exist."""
        ...


def files_at(root: str, spark: "SparkSession | None" = None) -> Files:
    """`root` is a path or a URL; one that is not local needs Spark."""
    scheme, separator, path = root.partition("://")
    if not separator:
        return LocalFiles(root)
    if scheme == "file":
        return LocalFiles(path)
    if spark is None:
        raise PipelineError(f"{root} can be read only through Spark.", "Run a command that starts Spark.")
    return HadoopFiles(root, spark)


class LocalFiles:
    def __init__(self, root: str) -> None:
        # Spark takes the first part of a relative path in a URL for the name of a host.
        self.root = str(Path(root).absolute())

    def url(self, path: str = "") -> str:
        return f"file://{self._at(path)}"

    def exists(self, path: str) -> bool:
        return self._at(path).exists()

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._at(folder)))
        except FileNotFoundError:
            return []

    def below(self, folder: str) -> list[FoundFile]:
        return sorted(self._below(folder))

    def _below(self, folder: str) -> Iterator[FoundFile]:
        for parent, _, names in os.walk(self._at(folder)):
            for name in names:
                path = Path(parent, name)
                # It may have been deleted since.
                with contextlib.suppress(FileNotFoundError):
                    yield FoundFile(str(path.relative_to(self.root)), path.stat().st_size)

    def read(self, path: str) -> str:
        return self._at(path).read_text(encoding="utf-8")

    def read_bytes(self, path: str) -> bytes:
        return self._at(path).read_bytes()

    def create(self, path: str, content: str | bytes) -> bool:
        return durable_files.create(self._at(path), _as_bytes(content))

    def make_folder(self, path: str) -> None:
        durable_files.make_folder(self._at(path))

    def modified_s(self, path: str) -> float:
        return self._at(path).stat().st_mtime

    def move(self, source: str, target: str) -> None:
        """Flushes the file first: a manifest must not name a file that a power failure could lose."""
        durable_files.move(self._at(source), self._at(target))

    def delete(self, path: str) -> None:
        target = self._at(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def _at(self, path: str) -> Path:
        return Path(self.root, path)


class HadoopFiles:
    """Through Hadoop's FileSystem in the driver: hdfs://, s3a:// and whatever its jars support."""

    def __init__(self, root: str, spark: "SparkSession") -> None:
        self.root = root.rstrip("/")
        session: Any = spark
        self._jvm = session._jvm
        conf = session._jsc.hadoopConfiguration()
        try:
            self._fs = self._path("").getFileSystem(conf)
            self._context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._path("").toUri(), conf
            )
        except Exception as error:
            raise PipelineError(
                f"{root} cannot be reached: {root_cause(error)}.",
                "Check the URL and its credentials; s3a:// also needs the jars of hadoop-aws in spark.jars.",
            ) from error

    def url(self, path: str = "") -> str:
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        if not self.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self._path(folder)))

    def below(self, folder: str) -> list[FoundFile]:
        for _ in range(_LISTINGS_MAX):
            try:
                return self._below(folder)
            except Exception as error:
                if not _is_missing(error):
                    raise
                # A folder below it may have been deleted meanwhile.
                if not self.exists(folder):
                    return []
        raise PipelineError(
            f"{self.url(folder)} cannot be listed: folders in it are deleted all the time.",
            "Stop the program that deletes them.",
        )

    def _below(self, folder: str) -> list[FoundFile]:
        found = []
        statuses = self._fs.listFiles(self._path(folder), True)
        prefix = self._path("").toUri().getPath().rstrip("/") + "/"
        while statuses.hasNext():
            status = statuses.next()
            found.append(FoundFile(status.getPath().toUri().getPath().removeprefix(prefix), status.getLen()))
        return sorted(found)

    def read(self, path: str) -> str:
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        try:
            stream = self._fs.open(self._path(path))
        except Exception as error:
            if _is_missing(error):
                raise FileNotFoundError(self.url(path)) from error
            raise
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def create(self, path: str, content: str | bytes) -> bool:
        if self.exists(path):
            return False
        target, data = self._path(path), _as_bytes(content)
        if self._fs.hasPathCapability(target, _PUT_IF_ABSENT):
            builder = self._fs.createFile(target).recursive().must(_PUT_IF_ABSENT, True)
            return self._unless_exists(lambda: _write_stream(builder.build(), data))
        if self._fs.hasPathCapability(target, _APPEARS_WHEN_CLOSED):
            return self._unless_exists(lambda: _write_stream(self._fs.create(target, False), data))
        draft = self._path(f"{path}.{uuid.uuid4().hex}")
        _write_stream(self._fs.create(draft, False), data)
        options = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName(_RENAME_OPTION), 0
        )
        done = self._unless_exists(lambda: self._context.rename(draft, target, options))
        self._fs.delete(draft, False)
        return done

    def _unless_exists(self, step: Callable[[], object]) -> bool:
        try:
            step()
        except Exception as error:
            if any(name in str(error) for name in _ALREADY_EXISTS):
                return False
            raise
        return True

    def make_folder(self, path: str) -> None:
        self._fs.mkdirs(self._path(path))

    def modified_s(self, path: str) -> float:
        return float(self._fs.getFileStatus(self._path(path)).getModificationTime()) / 1000

    def move(self, source: str, target: str) -> None:
        destination = self._path(target)
        self._fs.mkdirs(destination.getParent())
        self._fs.delete(destination, False)
        if not self._fs.rename(self._path(source), destination):
            raise PipelineError(
                f"{self.url(source)} could not be moved to {self.url(target)}.",
                "Check the file system and start again.",
            )

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path))


def _is_missing(error: Exception) -> bool:
    return "FileNotFoundException" in str(error)


def _write_stream(stream: Any, data: bytes) -> None:
    stream.write(data)
    stream.close()


def _as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def root_cause(error: BaseException) -> str:
    """The first line of the innermost cause of a Java exception, or of the Python error."""
    cause: Any = getattr(error, "java_exception", None)
    if cause is None:
        return str(error).strip().partition("\n")[0].rstrip(".")
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).partition("\n")[0].rstrip(".")
