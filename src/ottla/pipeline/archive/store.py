"""An archive at its path: reads its history, adds manifests, and condenses the earlier ones."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.pipeline.archive.condensed import (
    MARKER_TEXT,
    Condensed,
    FileList,
    ListRef,
    condensed_ranges,
    digest,
    join,
    level_of,
    levels_to_join,
    list_from_json,
    list_of,
    list_to_json,
    recent_digests,
    sum_of,
    summary_from_json,
    summary_to_json,
)
from ottla.pipeline.archive.layout import (
    FILE_LISTS,
    FOLD_NAME,
    FOLDED,
    LIST_NAME,
    MANIFEST_NAME,
    MANIFESTS,
    MARKER,
    SUMMARY_NAME,
    list_name,
    manifest_file,
    summary_file,
)
from ottla.pipeline.archive.manifest import (
    Archived,
    Batch,
    Claim,
    Manifest,
    Merge,
    Summary,
    combine,
    fold_from_json,
    from_json,
    summarize,
)
from ottla.pipeline.archive.manifest import (
    to_json as to_json,
)
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import Files, ReadableFiles, files_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_THREADS = 16
# from this many on, manifests are condensed
CONDENSE_AT = 100
_LISTINGS_MAX = 10
_MARKER_NAME = MARKER.rpartition("/")[2]
_Result = TypeVar("_Result")


class Recent(NamedTuple):
    """The condensed part of a history, and the manifests after it by number."""

    condensed: Condensed
    manifests: dict[int, Manifest]

    @property
    def number(self) -> int:
        return max(self.manifests, default=self.condensed.summary.number)


class Manifests:
    """The manifests of an archive. Each is read only once, because a manifest never changes."""

    def __init__(self, files: ReadableFiles) -> None:
        self._files = files
        self._known: dict[int, Manifest] = {}
        self._folds: dict[str, dict[int, Manifest]] = {}
        self._condensed = Condensed()
        # the numbers of those with a file of their own, as last listed
        self.listed: list[int] = []

    def recent(self) -> Recent:
        """The history as it is now. Its cost does not depend on its length."""
        return self._retried(self._read)

    def load(self, until: int | None = None) -> Archived:
        """The sum of all manifests now, with files; with `until` without newer ones that are not condensed."""

        def load() -> Archived:
            recent = self._read()
            wanted = {one: each for one, each in recent.manifests.items() if until is None or one <= until}
            return combine(wanted, self.before(recent))

        return self._retried(load)

    def before(self, recent: Recent) -> Archived:
        """The sum of the condensed part. Raises FileNotFoundError if it has been condensed again since."""
        return sum_of(recent.condensed, self.read_lists(recent.condensed.lists))

    def _retried(self, step: Callable[[], _Result]) -> _Result:
        """Again if a file is gone: its content was condensed between listing and reading."""
        gone: FileNotFoundError | None = None
        for _ in range(_LISTINGS_MAX):
            try:
                return step()
            except FileNotFoundError as error:
                gone = error
        raise PipelineError(
            f"A part of the manifests of the archive at {self._files.url()} is missing: {gone}.",
            "Restore the folder from a copy of the archive.",
        )

    def _read(self) -> Recent:
        # In this order: a manifest is deleted only after it was condensed, so the second listing finds the summary of a
        # manifest that the first listing misses.
        found = [MANIFEST_NAME.fullmatch(name) for name in self._files.names(MANIFESTS)]
        self.listed = sorted(int(one[1]) for one in found if one)
        names = self._files.names(FOLDED)
        self._read_condensed(names)
        number = self._condensed.summary.number
        folds = self._read_folds(names)
        if self._condensed.sequence == 0 and _MARKER_NAME in names and 1 not in {*self.listed, *folds}:
            # The first manifest is deleted only after the first summary was created.
            raise FileNotFoundError(self._files.url(f"{FOLDED}/*.summary.json"))
        folded = {one: manifest for one, manifest in folds.items() if one > number}
        wanted = [one for one in self.listed if one > number and one not in folded]
        new = [one for one in wanted if one not in self._known]
        texts = self._read_texts([manifest_file(one) for one in new])
        read = [from_json(text, where) for text, where in texts]
        known = self._known | dict(zip(new, read, strict=True))
        self._known = {one: known[one] for one in wanted}
        recent = Recent(self._condensed, self._known | folded)
        self._check_newest(recent)
        return recent

    def _check_newest(self, recent: Recent) -> None:
        """Raises FileNotFoundError if a newer summary is lost.

        Its list is still there. The list of a process that was killed before the summary is not newer than the
        manifests, because these are deleted after it.
        """
        for name in self._files.names(FILE_LISTS):
            found = LIST_NAME.fullmatch(name)
            if found and int(found[1]) > recent.condensed.sequence and int(found[2]) > recent.number:
                raise FileNotFoundError(self._files.url(summary_file(int(found[1]))))

    def _read_condensed(self, names: list[str]) -> None:
        found = [SUMMARY_NAME.fullmatch(name) for name in names]
        sequence = max((int(one[1]) for one in found if one), default=0)
        if sequence == 0:
            self._condensed = Condensed()
        elif sequence != self._condensed.sequence:
            ((text, where),) = self._read_texts([summary_file(sequence)])
            self._condensed = summary_from_json(text, sequence, where)

    def _read_folds(self, names: list[str]) -> dict[int, Manifest]:
        """Those of an older Ottla."""
        folds = [name for name in names if FOLD_NAME.fullmatch(name)]
        new = [name for name in folds if name not in self._folds]
        texts = self._read_texts([f"{FOLDED}/{name}" for name in new])
        self._folds |= {name: fold_from_json(*text) for name, text in zip(new, texts, strict=True)}
        self._folds = {name: self._folds[name] for name in folds}
        return {number: one for fold in self._folds.values() for number, one in fold.items()}

    def read_lists(self, lists: tuple[ListRef, ...]) -> list[FileList]:
        texts = self._read_texts([f"{FILE_LISTS}/{one.name}" for one in lists])
        return [list_from_json(text, where) for text, where in texts]

    def _read_texts(self, paths: list[str]) -> list[tuple[str, str]]:
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

    def summary(self) -> Summary:
        """The sum of its manifests now, without files. Its cost does not depend on the number of batches and files."""
        recent = self._manifests.recent()
        return summarize(recent.manifests, recent.condensed.summary)

    def load(self, until: int | None = None) -> Archived:
        """The sum of its manifests now, with files; with `until` without newer ones that are not condensed."""
        return self._manifests.load(until)

    def recent(self) -> Recent:
        return self._manifests.recent()

    def before(self, recent: Recent) -> Archived:
        """The sum of the manifests before these. Raises FileNotFoundError if others are condensed now."""
        return self._manifests.before(recent)

    def commit(self, manifest: Batch | Claim, check: Callable[[Summary], None]) -> None:
        """Adds it after all others. `check` gets the sum of those before it, and raises if it must not be added.

        Only one writer gets the next number. The others check again, with that manifest, before the next attempt.
        """
        while True:
            summary = self.summary()
            check(summary)
            if self._add(summary.number + 1, manifest):
                return

    def commit_merge(self, merge: Merge, check: Callable[[Archived], None]) -> None:
        """As `commit`; `check` also gets the files."""
        while True:
            archived = self.load()
            if merge.files and all(file.path in archived.files for file in merge.files):
                # The previous attempt added it, and others condensed so much since that its number is forgotten.
                return
            check(archived)
            if self._add(archived.number + 1, merge):
                return

    def _add(self, number: int, manifest: Manifest) -> bool:
        """Whether it has the number now.

        The response to a write may be lost and the write retried, so only the content says whose it is. And a number
        that was condensed and deleted in the meantime can be created again, but does not count.
        """
        self.files.create(manifest_file(number), to_json(manifest))
        recent = self._manifests.recent()
        if number > recent.condensed.summary.number:
            return recent.manifests.get(number) == manifest
        return recent.condensed.digests.get(number) == digest(manifest)

    def condense(self) -> None:
        """Condenses the newest manifests if there are many. It may be killed at any moment, and run twice at once."""
        recent = self._manifests.recent()
        summary = summarize(recent.manifests, recent.condensed.summary)
        # A manifest that is missing may be restored from a copy, and must count then.
        if len(recent.manifests) >= CONDENSE_AT and not summary.missing:
            try:
                self._condense(recent, summary)
            except FileNotFoundError:
                # Another process condenses them.
                return
            self.remove_condensed()
        else:
            self._remove_manifests(recent)

    def _condense(self, recent: Recent, summary: Summary) -> None:
        before, manifests = recent.condensed, recent.manifests
        sequence = before.sequence + 1
        count, level = levels_to_join(
            [one.level for one in before.lists], level_of(len(manifests), CONDENSE_AT)
        )
        kept, joined = before.lists[: len(before.lists) - count], before.lists[len(before.lists) - count :]
        first = joined[0].first if joined else min(manifests)
        content = join([*self._manifests.read_lists(joined), list_of(manifests)])
        ref = ListRef(list_name(sequence, first, summary.number), level, first)
        condensed = Condensed(
            sequence,
            replace(summary, ranges=condensed_ranges(summary.ranges)),
            (*kept, ref),
            recent_digests(before.digests, manifests),
        )
        self.files.create(f"{FILE_LISTS}/{ref.name}", list_to_json(content))
        # Before the summary: what an older Ottla adds after it would not be in it.
        self.files.create(MARKER, MARKER_TEXT)
        self.files.create(summary_file(sequence), summary_to_json(condensed))

    def remove_condensed(self) -> None:
        """Removes what the newest summary replaces.

        A list whose name has the sequence number of a summary is named by that one or by none, and a later summary
        names no others than the one before it does. So a list with an earlier or the same number that the newest
        summary does not name will never be named again. The summary before the newest stays, so that a listing that
        runs meanwhile finds one of them.
        """
        recent = self._manifests.recent()
        newest = recent.condensed
        if newest.sequence == 0:
            return
        named = {one.name for one in newest.lists}
        lists = ((name, LIST_NAME.fullmatch(name)) for name in self.files.names(FILE_LISTS))
        over = [
            f"{FILE_LISTS}/{name}"
            for name, found in lists
            if found and int(found[1]) <= newest.sequence and name not in named
        ]
        for name in self.files.names(FOLDED):
            found, fold = SUMMARY_NAME.fullmatch(name), FOLD_NAME.fullmatch(name)
            # An older Ottla that did not see the marker yet may have folded newer manifests.
            if (found and int(found[1]) < newest.sequence - 1) or (
                fold and int(fold[1]) <= newest.summary.number
            ):
                over.append(f"{FOLDED}/{name}")
        self._remove_manifests(recent)
        self._delete(over)

    def _remove_manifests(self, recent: Recent) -> None:
        done = [one for one in self._manifests.listed if one <= recent.condensed.summary.number]
        self._delete([manifest_file(one) for one in done])

    def _delete(self, paths: list[str]) -> None:
        """Files that a summary replaces."""
        with ThreadPoolExecutor(_THREADS) as deleting:
            list(deleting.map(self.files.delete, paths))


def archive_gone(url: str) -> PipelineError:
    return PipelineError(
        f"The archive at {url} is gone: it has no folder {MANIFESTS}.",
        "Mount or restore it, or fix `path`. To start a new archive from the records that the topics still have, "
        "remove this stage's checkpoint.",
    )
