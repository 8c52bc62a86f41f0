"""The driver's side of a spool directory: what there is to read, entry by entry, and what is done with."""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.files import Found, Piece, TakenFile, identity_of, stat_file
from ottla.pipeline.ingest.spooldir.finding import find, in_order, is_settled
from ottla.pipeline.ingest.spooldir.finishing import finish, is_there, resume
from ottla.pipeline.ingest.spooldir.log import TakenLog
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings
from ottla.pipeline.ingest.spooldir.taking import Limits, Place, after, change_of, cost, next_piece
from ottla.pipeline.ingest.spooldir.troubles import changed, gone, log_too_far, log_too_short, unreadable


class Spool:
    """Offsets are entries of the log. All paths of the settings are absolute."""

    def __init__(self, settings: SpoolDirSettings) -> None:
        self.settings = settings
        self.log = TakenLog(Path(settings.log))
        self.limits = Limits(settings.split_bytes, settings.max_record_bytes)
        self.waiting: deque[Found] = deque()
        self._is_frozen = False

    def open(self) -> None:
        self.log.open()
        resume(self.log, self.settings)

    def freeze(self) -> None:
        """From now on only the files that are there now are taken. Those that are not yet quiet get the time for it."""
        unsettled = [file.ctime for file in find(self.settings) if not self._is_settled(file.ctime)]
        if unsettled:
            time.sleep(
                min(self.settings.settle_s, max(0.0, max(unsettled) + self.settings.settle_s - time.time()))
            )
        self._look()
        self._is_frozen = True

    def latest(self, start: int, bytes_max: float) -> int:
        """The end of a batch that begins at `start`. All below `start` is committed, so its files are put away."""
        if start > self.log.end:
            raise log_too_short(str(self.log.folder), start, self.log.end)
        finish(self.log, start, self.settings)
        end, spent = start, 0
        while end < self.log.end and (end == start or spent + cost(self.log.entries[end]) <= bytes_max):
            spent += cost(self.log.entries[end])
            end += 1
        if end < self.log.end or (end > start and spent >= bytes_max):
            return end
        if not self.waiting and not self._is_frozen:
            self._look()
        entries = list(self._new_entries(bytes_max - spent))
        if entries:
            self.log.take(entries)
        return self.log.end

    def entries(self, start: int, end: int) -> list[list[tuple[TakenFile, Piece]]]:
        """What each task of a batch reads."""
        if end > self.log.end:
            raise log_too_short(str(self.log.folder), end, self.log.end)
        if start < self.log.finished:
            raise log_too_far(str(self.log.folder), start, self.log.finished)
        return [
            [(self.log.files[piece.file], piece) for piece in self.log.entries[at]]
            for at in range(start, end)
        ]

    def _look(self) -> None:
        """Lists the folder for what is new, and finds files that changed since they were taken."""
        self.waiting = deque(
            in_order(
                file for file in find(self.settings) if self._is_new(file) and self._is_settled(file.ctime)
            )
        )

    def _is_settled(self, ctime: float) -> bool:
        return is_settled(ctime, time.time(), self.settings.settle_s)

    def _is_new(self, found: Found) -> bool:
        known = self.log.known.get(found.path)
        if known is None:
            return True
        if known.identity == found.identity:
            return False
        if known.number in self.log.kept:
            if self.settings.after == "keep" and known.identity.inode == found.identity.inode:
                raise changed(found.path, "it was written to")
            return True
        status = stat_file(found.path)
        if status is not None and (change := change_of(known, status, self.log.pieces_of)):
            raise changed(found.path, change)
        return False

    def _new_entries(self, bytes_max: float) -> Iterator[tuple[list[TakenFile], list[Piece]]]:
        """Pieces of the files that wait, packed into what a task shall read."""
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
        """What is wrong with a file is said when all before it is taken: so it stops nothing but what follows it."""
        spent = 0
        for file, place in self._files_to_take():
            try:
                with open(file.path, "rb") as opened:
                    while place is not None and spent < bytes_max:
                        piece = next_piece(file, opened.fileno(), place, self.limits)
                        place = after(piece) if piece.end < file.identity.size else None
                        spent += cost([piece])
                        yield file, piece
            except (PipelineError, OSError) as error:
                if place == Place() and not is_there(file):
                    continue  # it was not yet quiet, or somebody took it away: nothing of it is promised
                if spent == 0:
                    raise trouble_of(file, error) from None
                if place == Place():
                    self.waiting.appendleft(as_found(file))
                return
            if spent >= bytes_max:
                return

    def _files_to_take(self) -> Iterator[tuple[TakenFile, Place | None]]:
        if self.log.unfinished is not None:
            yield self.log.unfinished
        while self.waiting:
            found = self.waiting.popleft()
            status = stat_file(found.path)
            if status is not None and self._is_settled(status.st_ctime):
                splitting = self.settings.splitting()
                yield self.log.new_file(found.path, found.name, identity_of(status), splitting), Place()


def trouble_of(file: TakenFile, error: PipelineError | OSError) -> PipelineError:
    if isinstance(error, PipelineError):
        return error
    return (
        gone(file.path, file.identity.size)
        if isinstance(error, FileNotFoundError)
        else unreadable(file.path, error)
    )


def as_found(file: TakenFile) -> Found:
    return Found(file.path, file.name, file.identity, ctime=0.0)
