"""The few operations on files that an archive needs, for a local folder and for any file system that Hadoop knows.

A local folder needs no Java, so that its manifests can be read where no Spark runs.
"""

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

# An object store that puts an object only where there is none: with `overwrite=False` alone S3A looks first and then
# puts, and of two that do so at once the second wins (HADOOP-19256).
PUT_IF_ABSENT = "fs.option.create.conditional.overwrite"
# A stream that can be abandoned is one whose file appears only when it is closed: a single put of an object store.
APPEARS_WHEN_CLOSED = "fs.capability.outputstream.abortable"
ALREADY_THERE = ("FileAlreadyExists", "PreconditionFailed", "ConditionalRequestConflict")


class FoundFile(NamedTuple):
    path: str
    bytes: int


class ReadableFiles(Protocol):
    """Files below a folder; every path is relative to it."""

    def url(self, path: str = "") -> str:
        """As Spark takes it."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of what is in a folder, sorted; none where there is no folder."""
        ...

    def read(self, path: str) -> str:
        """FileNotFoundError where there is none."""
        ...


class Files(ReadableFiles, Protocol):
    def exists(self, path: str) -> bool: ...

    def below(self, folder: str) -> list[FoundFile]:
        """All files below a folder, sorted by path."""
        ...

    def create(self, path: str, content: str | bytes) -> bool:
        """Writes a file whole or not at all. False, and nothing done, where there is one already."""
        ...

    def make_folder(self, path: str) -> None: ...

    def move(self, source: str, target: str) -> None:
        """Takes the place of `target` if there is one."""
        ...

    def delete(self, path: str) -> None:
        """A file or a folder with all that is in it; nothing where there is none."""
        ...


def files_at(root: str, spark: "SparkSession | None" = None) -> Files:
    """`root` is an absolute path or a URL; one that is not local needs Spark."""
    scheme, separator, path = root.partition("://")
    if not separator:
        return LocalFiles(root)
    if scheme == "file":
        return LocalFiles(path)
    if spark is None:
        raise PipelineError(f"{root} can be read only through Spark.", "Ask for it where Spark runs.")
    return HadoopFiles(root, spark)


class LocalFiles:
    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"

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
                yield FoundFile(str(path.relative_to(self.root)), path.stat().st_size)

    def read(self, path: str) -> str:
        return self._at(path).read_text(encoding="utf-8")

    def create(self, path: str, content: str | bytes) -> bool:
        return durable_files.create(self._at(path), as_bytes(content))

    def make_folder(self, path: str) -> None:
        durable_files.make_folder(self._at(path))

    def move(self, source: str, target: str) -> None:
        """The file is on the disk, and not only in memory, before a manifest can name it."""
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
    """Through Hadoop's FileSystem in the driver: hdfs://, s3a:// and whatever else its jars know."""

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
        found = []
        statuses = self._fs.listFiles(self._path(folder), True)
        prefix = self._path("").toUri().getPath().rstrip("/") + "/"
        while statuses.hasNext():
            status = statuses.next()
            found.append(FoundFile(status.getPath().toUri().getPath().removeprefix(prefix), status.getLen()))
        return sorted(found)

    def read(self, path: str) -> str:
        try:
            stream = self._fs.open(self._path(path))
        except Exception as error:
            if "FileNotFoundException" in str(error):
                raise FileNotFoundError(self.url(path)) from error
            raise
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def create(self, path: str, content: str | bytes) -> bool:
        if self.exists(path):
            return False
        target, data = self._path(path), as_bytes(content)
        if self._fs.hasPathCapability(target, PUT_IF_ABSENT):
            builder = self._fs.createFile(target).recursive().must(PUT_IF_ABSENT, True)
            return self._unless_there(lambda: write(builder.build(), data))
        if self._fs.hasPathCapability(target, APPEARS_WHEN_CLOSED):
            return self._unless_there(lambda: write(self._fs.create(target, False), data))
        draft = self._path(f"{path}.{uuid.uuid4().hex}")
        write(self._fs.create(draft, False), data)
        options = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName(RENAME_OPTION), 0
        )
        done = self._unless_there(lambda: self._context.rename(draft, target, options))
        self._fs.delete(draft, False)
        return done

    def _unless_there(self, step: Callable[[], object]) -> bool:
        try:
            step()
        except Exception as error:
            if any(said in str(error) for said in ALREADY_THERE):
                return False
            raise
        return True

    def make_folder(self, path: str) -> None:
        self._fs.mkdirs(self._path(path))

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


def write(stream: Any, data: bytes) -> None:
    stream.write(data)
    stream.close()


def as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


RENAME_OPTION = "org.apache.hadoop.fs.Options$Rename"


def root_cause(error: BaseException) -> str:
    """The innermost line of Java's account, or Python's own."""
    cause: Any = getattr(error, "java_exception", None)
    if cause is None:
        return str(error).strip().partition("\n")[0].rstrip(".")
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).partition("\n")[0].rstrip(".")
