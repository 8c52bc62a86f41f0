"""The log of taken files: which pieces of which files are in entry 0, 1, 2 ... The offsets of the stream are entries.

One task reads one entry. An entry is on disk before Spark gets its offset, and never changes, so a batch that runs
again reads the same bytes. The log has one JSON object per line, appended and flushed; an incomplete last line, which a
crash leaves, is dropped.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from ottla.pipeline.durable_files import write_atomically
from ottla.pipeline.ingest.spooldir.errors import log_damaged, log_in_use, log_unwritable
from ottla.pipeline.ingest.spooldir.files import Identity, Piece, TakenFile
from ottla.pipeline.ingest.spooldir.pieces import FilePosition, end_of
from ottla.pipeline.ingest.spooldir.record_format import RecordFormat

_NAME = "taken.jsonl"
LOCK_WAIT_S = 20.0
# The log is rewritten without its finished entries when it is larger than this and than twice its last rewrite.
REWRITE_BYTES = 4 * 1024 * 1024


class _PartlyTaken(NamedTuple):
    """The file that is only partly taken, and how far."""

    file: TakenFile
    position: FilePosition


class TakenLog:
    """What was taken (`entries` from `finished` to `end`), and which of it is finished.

    Files below `finished` are committed and finished. Files below `finishing` are committed, and some may be finished.
    `known` has, by path, the files that are not finished, and those that are finished but still there (`kept`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / _NAME
        self.entries: dict[int, tuple[Piece, ...]] = {}
        self.files: dict[int, TakenFile] = {}
        self.known: dict[str, TakenFile] = {}
        self.kept: set[int] = set()
        self.partly_taken: _PartlyTaken | None = None
        self.end = self.finishing = self.finished = 0
        self._next_file = 0
        self._rewrite_at = REWRITE_BYTES
        self._lock: IO[bytes] | None = None

    def open(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.folder)
            self._read()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise log_unwritable(str(self.folder), error) from None
            raise

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def new_file(self, path: str, name: str, identity: Identity, record_format: RecordFormat) -> TakenFile:
        """Gives a file its number. The file is taken with the first entry that has a piece of it."""
        self._next_file += 1
        return TakenFile(self._next_file - 1, path, name, identity, record_format)

    def take(self, entries: Sequence[tuple[Sequence[TakenFile], Sequence[Piece]]]) -> None:
        """Appends entries. Each has its pieces, and the files whose first piece is among them."""
        self._append(
            {"entry": self.end + at, "files": [_encode_file(file) for file in files], "pieces": pieces}
            for at, (files, pieces) in enumerate(entries)
        )

    def begin_finishing(self, end: int) -> None:
        self._append([{"finishing": end}])

    def end_finishing(self, end: int, kept: Sequence[int]) -> None:
        self._append([{"finished": end, "kept": list(kept)}])
        if self.path.stat().st_size > self._rewrite_at:
            self._rewrite()

    def last_pieces(self, start: int, end: int) -> Iterator[TakenFile]:
        """The files whose last piece is in these entries, in the order in which they were taken."""
        for at in range(start, end):
            for piece in self.entries[at]:
                if piece.end == self.files[piece.file].identity.size:
                    yield self.files[piece.file]

    def pieces_of(self, file: TakenFile) -> list[Piece] | None:
        """All pieces of a file; None if some are not taken yet, or no longer in the log."""
        pieces = [piece for entry in self.entries.values() for piece in entry if piece.file == file.number]
        is_complete = sum(piece.end - piece.start for piece in pieces) == file.identity.size
        return pieces if pieces and is_complete else None

    def _read(self) -> None:
        if not self.path.exists():
            self._rewrite()
            return
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.path.open("r+b") as opened:
                opened.truncate(whole)
                os.fsync(opened.fileno())
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                self._replay(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                raise log_damaged(str(self.folder), number) from None
        self._rewrite_at = max(REWRITE_BYTES, 2 * whole)

    def _append(self, lines: Any) -> None:
        lines = list(lines)
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        try:
            append_durably(self.path, text.encode())
        except OSError as error:
            raise log_unwritable(str(self.folder), error) from None
        for line in lines:
            self._replay(line)

    def _replay(self, line: dict[str, Any]) -> None:
        if "entry" in line:
            if line["entry"] != self.end:
                raise ValueError(f"entry {line['entry']} after entry {self.end - 1}")
            self._replay_entry(
                [_decode_file(file) for file in line["files"]], [Piece(*piece) for piece in line["pieces"]]
            )
        elif "finishing" in line:
            self.finishing = line["finishing"]
        elif "finished" in line:
            self._replay_finished(line["finished"], line["kept"])
        else:
            self._replay_snapshot(line["snapshot"])

    def _replay_entry(self, files: list[TakenFile], pieces: list[Piece]) -> None:
        for file in files:
            self._remember(file)
        for piece in pieces:
            file = self.files[piece.file]
            is_last = piece.end == file.identity.size
            self.partly_taken = None if is_last else _PartlyTaken(file, end_of(piece))
        self.entries[self.end] = tuple(pieces)
        self.end += 1

    def _replay_finished(self, end: int, kept: list[int]) -> None:
        self.kept.update(kept)
        for file in list(self.last_pieces(self.finished, end)):
            if file.number not in self.kept:
                del self.files[file.number]
                if self.known[file.path] is file:
                    del self.known[file.path]
        for at in range(self.finished, end):
            del self.entries[at]
        self.finished = self.finishing = end

    def _replay_snapshot(self, snapshot: dict[str, Any]) -> None:
        self.end = self.finishing = self.finished = snapshot["finished"]
        self._next_file = snapshot["next_file"]
        for file in snapshot["files"]:
            self._remember(_decode_file(file))
        self.kept = set(snapshot["kept"])
        if snapshot["unfinished"] is not None:
            number, *position = snapshot["unfinished"]
            self.partly_taken = _PartlyTaken(self.files[number], FilePosition(*position))

    def _remember(self, file: TakenFile) -> None:
        before = self.known.get(file.path)
        if before is not None:
            # The name was used before, by a file that was kept: only the newer file can be found again.
            self.kept.discard(before.number)
            self.files.pop(before.number, None)
        self.files[file.number] = self.known[file.path] = file
        self._next_file = max(self._next_file, file.number + 1)

    def _rewrite(self) -> None:
        """Replaces the log, atomically, by one without its finished entries."""
        partly_taken = (
            [self.partly_taken.file.number, *self.partly_taken.position] if self.partly_taken else None
        )
        in_entries = {piece.file for entry in self.entries.values() for piece in entry if piece.start == 0}
        snapshot = {
            "version": 1,
            "finished": self.finished,
            "next_file": self._next_file,
            "files": [_encode_file(file) for file in self.files.values() if file.number not in in_entries],
            "kept": sorted(self.kept),
            "unfinished": partly_taken if partly_taken and partly_taken[0] not in in_entries else None,
        }
        lines: list[dict[str, Any]] = [{"snapshot": snapshot}]
        for at, pieces in self.entries.items():
            files = [_encode_file(self.files[piece.file]) for piece in pieces if piece.start == 0]
            lines.append({"entry": at, "files": files, "pieces": pieces})
        if self.finishing > self.finished:
            lines.append({"finishing": self.finishing})
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        write_atomically(self.path, text.encode())
        self._rewrite_at = max(REWRITE_BYTES, 2 * len(text))


def _encode_file(file: TakenFile) -> list[Any]:
    delimiter, *rest = file.record_format
    return [file.number, file.path, file.name, list(file.identity), [delimiter.hex(), *rest]]


def _decode_file(line: list[Any]) -> TakenFile:
    number, path, name, identity, (delimiter, *rest) = line
    return TakenFile(number, path, name, Identity(*identity), RecordFormat(bytes.fromhex(delimiter), *rest))


def _lock(folder: Path) -> IO[bytes]:
    """Locks the log. Waits a little, because a query that was just killed may still hold the lock."""
    lock = (folder / "lock").open("ab")
    give_up = time.monotonic() + LOCK_WAIT_S
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        if time.monotonic() > give_up:
            lock.close()
            raise log_in_use(str(folder))
        time.sleep(0.1)


def append_durably(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as opened:
        before = opened.tell()
        try:
            if opened.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(opened.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                opened.truncate(before)
            raise
