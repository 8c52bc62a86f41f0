"""A process that condenses an archive is killed at each of its file operations, and overtakes readers at each read.

The archive says the same at every moment.
"""

import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipeline.archive.archive_changes import CONDENSE_AT, start
from tests.unit.pipeline.archive.archive_samples import a_history, add, older_fold, says
from tests.unit.pipeline.archive.killed_process import killed_everywhere

from ottla.pipeline.archive import store
from ottla.pipeline.archive.layout import FILE_LISTS, FOLDED, MANIFEST_NAME, MANIFESTS
from ottla.pipeline.archive.manifest import Archived, combine
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.files import LocalFiles

COUNT = 26


def of_manifests(archive: Archive) -> None:
    """As an Ottla left it that condensed nothing."""
    for manifest in a_history(COUNT).values():
        add(archive, manifest)


def of_folds(archive: Archive) -> None:
    """As an older Ottla left it, with many manifests in one file."""
    history = a_history(COUNT)
    early = {number: manifest for number, manifest in history.items() if number <= COUNT // 2}
    archive.files.create(f"{FOLDED}/0000000001-{COUNT // 2:010}.json", older_fold(early))
    for number in sorted(history.keys() - early.keys()):
        add(archive, history[number])


def of_lists(archive: Archive) -> None:
    """Condensed already, with so many lists that the next is joined with them."""
    for number, manifest in a_history(COUNT).items():
        add(archive, manifest)
        if number <= COUNT - CONDENSE_AT:
            archive.condense()


ARCHIVES = [of_manifests, of_folds, of_lists]


@pytest.fixture(params=ARCHIVES, ids=lambda make: make.__name__)
def template(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "CONDENSE_AT", CONDENSE_AT)
    make: Callable[[Archive], None] = request.param
    make(Archive.at(str(tmp_path / "template")))
    return tmp_path / "template"


def content(archived: Archived) -> tuple[Archived, set[str]]:
    """Without the claims of the processes that were killed; and the paths that merges superseded."""
    superseded = {path for merge in archived.merges for path in merge.supersedes}
    return says(replace(archived, number=0, owners={})), superseded


@pytest.mark.slow
def test_an_archive_is_the_same_whenever_the_process_is_killed_that_condenses_it(
    template: Path, tmp_path: Path
) -> None:
    expected = content(combine(a_history(COUNT)))
    runs = killed_everywhere(start, template, tmp_path / "runs")
    assert len(runs) > 20
    for run in runs:
        for folder in run:
            archive = Archive.at(str(folder))
            assert content(archive.load()) == expected, folder
            assert archive.summary().ends == expected[0].ends
        again = Archive.at(str(run.again))
        newest = again.recent().condensed
        assert set(again.files.names(FILE_LISTS)) == {one.name for one in newest.lists}
        summaries = [f"{one:010}.summary.json" for one in (newest.sequence - 1, newest.sequence) if one]
        assert visible(again, FOLDED) == ["0000000000-0000000000.json", *summaries]
        left = [name for name in again.files.names(MANIFESTS) if MANIFEST_NAME.fullmatch(name)]
        assert len(left) < CONDENSE_AT


def visible(archive: Archive, folder: str) -> list[str]:
    """Without the drafts of processes that were killed while they wrote a file."""
    return [name for name in archive.files.names(folder) if not name.startswith(".")]


class Overtaken(LocalFiles):
    """Before the reads with these numbers another process changes the archive."""

    def __init__(self, root: str, change: Callable[[str], None], *reads: int) -> None:
        super().__init__(root)
        self.reads = reads
        self.change = change
        self.count = itertools.count()

    def names(self, folder: str) -> list[str]:
        self.look()
        return super().names(folder)

    def read(self, path: str) -> str:
        self.look()
        return super().read(path)

    def look(self) -> None:
        if next(self.count) in self.reads:
            self.change(self.root)


@pytest.mark.slow
@pytest.mark.parametrize("gap", [None, 1, 3])
def test_a_reader_that_is_overtaken_at_any_read_finds_the_same_archive(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: int | None
) -> None:
    """Once, or twice with so many reads in between."""
    # Otherwise its threads read in any order.
    monkeypatch.setattr(store, "_THREADS", 1)
    expected = content(combine(a_history(COUNT)))
    for number in itertools.count():
        folder = tmp_path / f"{number}"
        shutil.copytree(template, folder)
        reads = [number] if gap is None else [number, number + gap]
        files = Overtaken(str(folder), start, *reads)
        assert content(Archive(files).load()) == expected, reads
        if next(files.count) <= number:
            break
    assert number > 5
