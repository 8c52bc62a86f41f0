"""An archive at its path: reads its manifests, and adds one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.pipeline.archive.layout import (
    FOLD_NAME,
    FOLDED,
    MANIFEST_NAME,
    MANIFESTS,
    fold_file,
    manifest_file,
)
from ottla.pipeline.archive.manifest import (
    Archived,
    Manifest,
    combine,
    fold_from_json,
    fold_to_json,
    from_json,
    to_json,
)
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import Files, ReadableFiles, files_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_THREADS = 16
# from this many on, manifests are put into one file
FOLD_AT = 500
_LISTINGS_MAX = 10


class Manifests:
    """The manifests of an archive. Each is read only once, because a manifest never changes."""

    def __init__(self, files: ReadableFiles) -> None:
        self._files = files
        self._known: dict[int, Manifest] = {}
        self._folds: dict[str, dict[int, Manifest]] = {}
        # the numbers of those with a file of their own, and the folded ones
        self.loose: list[int] = []
        self.folded: dict[int, Manifest] = {}

    def load(self) -> dict[int, Manifest]:
        """All manifests that exist now, by number."""
        for _ in range(_LISTINGS_MAX):
            # In this order: a manifest is deleted only after it was folded, so the second listing finds the fold of a
            # manifest that the first listing misses.
            listed = [MANIFEST_NAME.fullmatch(name) for name in self._files.names(MANIFESTS)]
            self.loose = [int(found[1]) for found in listed if found]
            try:
                self._read_folds()
                return self._read_loose()
            except FileNotFoundError:
                # It was folded between listing and reading.
                continue
        raise PipelineError(
            f"The manifests of the archive at {self._files.url()} change all the time.", "Try again."
        )

    def _read_folds(self) -> None:
        names = [name for name in self._files.names(FOLDED) if FOLD_NAME.fullmatch(name)]
        new = [name for name in names if name not in self._folds]
        texts = self._read([f"{FOLDED}/{name}" for name in new])
        read = [fold_from_json(text, where) for text, where in texts]
        self._folds = {name: fold for name, fold in self._folds.items() if name in names}
        self._folds |= dict(zip(new, read, strict=True))
        self.folded = {number: one for fold in self._folds.values() for number, one in fold.items()}

    def _read_loose(self) -> dict[int, Manifest]:
        wanted = [number for number in self.loose if number not in self.folded]
        new = [number for number in wanted if number not in self._known]
        texts = self._read([manifest_file(number) for number in new])
        read = [from_json(text, where) for text, where in texts]
        self._known = {number: one for number, one in self._known.items() if number in set(wanted)}
        self._known |= dict(zip(new, read, strict=True))
        return self._known | self.folded

    def _read(self, paths: list[str]) -> list[tuple[str, str]]:
        """The content and the URL of each file."""
        with ThreadPoolExecutor(_THREADS) as readers:
            return list(readers.map(self._text, paths))

    def _text(self, path: str) -> tuple[str, str]:
        try:
            return self._files.read(path), self._files.url(path)
        except UnicodeDecodeError:
            return "", self._files.url(path)


class Archive:
    def __init__(self, files: Files) -> None:
        self.files = files
        self._manifests = Manifests(files)

    @classmethod
    def at(cls, path: str, spark: "SparkSession | None" = None) -> "Archive":
        return cls(files_at(path, spark))

    @property
    def url(self) -> str:
        return self.files.url()

    def exists(self) -> bool:
        return self.files.exists(MANIFESTS)

    def check(self) -> None:
        if not self.exists():
            raise archive_gone(self.url)

    def load(self) -> Archived:
        """The sum of its manifests now."""
        return combine(self._manifests.load())

    def manifests(self) -> dict[int, Manifest]:
        """Its history, by number."""
        return self._manifests.load()

    def commit(self, manifest: Manifest, check: Callable[[Archived], None]) -> None:
        """Adds it after all others. `check` gets the sum of those before it, and raises if it must not be added.

        Only one writer gets the next number. The others check again, with that manifest, before the next attempt.
        """
        while True:
            archived = self.load()
            check(archived)
            number = archived.number + 1
            self.files.create(manifest_file(number), to_json(manifest))
            # The response to a write may be lost and the write retried, so only the content says whose it is. And a
            # number that was folded and deleted in the meantime can be created again, but does not count.
            if self.manifests().get(number) == manifest:
                return

    def fold(self) -> None:
        """Puts many manifests into one file, if the last listing found many.

        It may be killed at any moment: a manifest that is in a fold and still has a file of its own counts once.
        """
        loose = [number for number in self._manifests.loose if number not in self._manifests.folded]
        if len(loose) >= FOLD_AT:
            known = self.manifests()
            self.files.create(
                fold_file(loose[0], loose[-1]), fold_to_json({one: known[one] for one in loose})
            )
            self.manifests()
        done = [number for number in self._manifests.loose if number in self._manifests.folded]
        with ThreadPoolExecutor(_THREADS) as deleting:
            list(deleting.map(self.files.delete, map(manifest_file, done)))


def archive_gone(url: str) -> PipelineError:
    return PipelineError(
        f"The archive at {url} is gone: it has no folder {MANIFESTS}.",
        "Mount or restore it, or fix `path`. To start a new archive from the records that the topics still have, "
        "remove this stage's checkpoint.",
    )
