"""The image that the records of the metadata log produce, one after the other."""

from ottla.core.controller.delta import MetadataDelta, PartitionObserver
from ottla.core.controller.image import MetadataImage
from ottla.protocol.metadata_records.records import MetadataRecord


class MetadataReplay:
    """`offset` and `epoch` are those of the last record, or of the given image before the first one."""

    def __init__(self, image: MetadataImage, observer: PartitionObserver | None = None) -> None:
        self.offset = image.offset
        self.epoch = image.epoch
        self._delta = MetadataDelta(image, observer)
        self._image = image
        self._is_outdated = False

    @property
    def image(self) -> MetadataImage:
        """The metadata with all replayed records. Inside a transaction, it includes the records so far."""
        if self._is_outdated:
            self._image = self._delta.image(self.offset, self.epoch)
            self._is_outdated = False
        return self._image

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction (KIP-868) is open."""
        return self._delta.in_transaction

    def replay(self, offset: int, record: MetadataRecord, epoch: int) -> None:
        """Raises ReplayError if the record contradicts the ones before it. The replay must not go on then."""
        self._delta.replay(record)
        self.skip_to(offset, epoch)

    def skip_to(self, offset: int, epoch: int) -> None:
        """The log continues to `offset` with records that do not change the metadata (control records)."""
        self.offset = offset
        self.epoch = max(epoch, self.epoch)
        self._is_outdated = True
