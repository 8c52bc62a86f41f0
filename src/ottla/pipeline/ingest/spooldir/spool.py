"""The driver's side of a spool directory: finds files, takes them entry by entry, and finishes them."""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.errors import (
    file_changed,
    file_missing,
    file_unreadable,
    log_ahead_of_checkpoint,
    log_behind_checkpoint,
)
from ottla.pipeline.ingest.spooldir.files import FoundFile, Piece, TakenFile, identity_of, stat_file
from ottla.pipeline.ingest.spooldir.finished_files import finish_files, is_unchanged, resume_finishing
from ottla.pipeline.ingest.spooldir.log import TakenLog
from ottla.pipeline.ingest.spooldir.pieces import (
    FilePosition,
    Limits,
    cost,
    describe_change,
    end_of,
    next_piece,
)
from ottla.pipeline.ingest.spooldir.scan import find_files, is_settled, sort_files
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings


class Spool:
    """Offsets are entries of the log. All paths of the settings are absolute."""

    def __init__(self, settings: SpoolDirSettings) -> None:
        self.settings = settings
        self.log = TakenLog(Path(settings.log))
        self.limits = Limits(settings.split_bytes, settings.max_record_bytes)
        self.waiting: deque[FoundFile] = deque()
        self._is_frozen = False

    def open(self) -> None:
        self.log.open()
        resume_finishing(self.log, self.settings)

    def freeze(self) -> None:
        """From now on only files that exist now are taken. Waits until those that are not settled may be."""
        unsettled = [file.ctime for file in find_files(self.settings) if not self._is_settled(file.ctime)]
        if unsettled:
            time.sleep(
                min(self.settings.settle_s, max(0.0, max(unsettled) + self.settings.settle_s - time.time()))
            )
        self._scan()
        self._is_frozen = True

    def latest(self, start: int, bytes_max: float) -> int:
        """The end of a batch that begins at `start`. Everything below `start` is committed: its files are finished."""
        if start > self.log.end:
            raise log_behind_checkpoint(str(self.log.folder), start, self.log.end)
        finish_files(self.log, start, self.settings)
        end, spent = start, 0
        while end < self.log.end and (end == start or spent + cost(self.log.entries[end]) <= bytes_max):
            spent += cost(self.log.entries[end])
            end += 1
        if end < self.log.end or (end > start and spent >= bytes_max):
            return end
        if not self.waiting and not self._is_frozen:
            self._scan()
        entries = list(self._new_entries(bytes_max - spent))
        if entries:
            self.log.take(entries)
        return self.log.end

    def entries(self, start: int, end: int) -> list[list[tuple[TakenFile, Piece]]]:
        """What each task of a batch reads."""
        if end > self.log.end:
            raise log_behind_checkpoint(str(self.log.folder), end, self.log.end)
        if start < self.log.finished:
            raise log_ahead_of_checkpoint(str(self.log.folder), start, self.log.finished)
        return [
            [(self.log.files[piece.file], piece) for piece in self.log.entries[at]]
            for at in range(start, end)
        ]

    def _scan(self) -> None:
        """Lists the folder for new files. Raises PipelineError for a file that changed since it was taken."""
        self.waiting = deque(
            sort_files(
                file
                for file in find_files(self.settings)
                if self._is_new(file) and self._is_settled(file.ctime)
            )
        )

    def _is_settled(self, ctime: float) -> bool:
        return is_settled(ctime, time.time(), self.settings.settle_s)

    def _is_new(self, found: FoundFile) -> bool:
        known = self.log.known.get(found.path)
        if known is None:
            return True
        if known.identity == found.identity:
            return False
        if known.number in self.log.kept:
            if self.settings.after == "keep" and known.identity.inode == found.identity.inode:
                raise file_changed(found.path, "it was written to")
            return True
        status = stat_file(found.path)
        if status is not None and (change := describe_change(known, status, self.log.pieces_of)):
            raise file_changed(found.path, change)
        return False

    def _new_entries(self, bytes_max: float) -> Iterator[tuple[list[TakenFile], list[Piece]]]:
        """Pieces of the waiting files, packed into entries of the size that a task should read."""
        files: list[TakenFile] = []
        pieces: list[Piece] = []
        for file, piece in self._new_pieces(bytes_max):
            if pieces and cost([*pieces, piece]) > self.limits.split_bytes:
                yield files, pieces
                files, pieces = [], []
            if piece.start == 0:
                files.append(file)
            pieces.append(piece)
        if pieces:
            yield files, pieces

    def _new_pieces(self, bytes_max: float) -> Iterator[tuple[TakenFile, Piece]]:
        """Raises the error of a file only when all files before it are taken: so it stops only those after it."""
        spent = 0
        for file, position in self._files_to_take():
            try:
                with open(file.path, "rb") as opened:
                    while position is not None and spent < bytes_max:
                        piece = next_piece(file, opened.fileno(), position, self.limits)
                        position = end_of(piece) if piece.end < file.identity.size else None
                        spent += cost([piece])
                        yield file, piece
            except (PipelineError, OSError) as error:
                if position == FilePosition() and not is_unchanged(file):
                    continue  # it was still written to, or removed: nothing of it is in the log yet
                if spent == 0:
                    raise _as_pipeline_error(file, error) from None
                if position == FilePosition():
                    self.waiting.appendleft(FoundFile(file.path, file.name, file.identity, ctime=0.0))
                return
            if spent >= bytes_max:
                return

    def _files_to_take(self) -> Iterator[tuple[TakenFile, FilePosition | None]]:
        if self.log.partly_taken is not None:
            yield self.log.partly_taken
        while self.waiting:
            found = self.waiting.popleft()
            status = stat_file(found.path)
            if status is not None and self._is_settled(status.st_ctime):
                record_format = self.settings.record_format()
                file = self.log.new_file(found.path, found.name, identity_of(status), record_format)
                yield file, FilePosition()


def _as_pipeline_error(file: TakenFile, error: PipelineError | OSError) -> PipelineError:
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, FileNotFoundError):
        return file_missing(file.path, file.identity.size)
    return file_unreadable(file.path, error)
