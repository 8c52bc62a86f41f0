"""Reads the values of the quorum's control records, and checks every length against the available bytes.

kio's reader is not suitable for a log: it rejects tagged fields that a newer Kafka may add, and it trusts the length of
an array.
"""

from struct import Struct
from uuid import UUID

from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0 import data as leader_change_v0
from kio.schema.leader_change_message.v1 import data as leader_change_v1
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.voters_record.v0 import data as voters_v0

_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_VARINT_BYTES_MAX = 5

QuorumMessage = (
    leader_change_v0.LeaderChangeMessage
    | leader_change_v1.LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | voters_v0.VotersRecord
)


class ValueReader:
    """A cursor over one value. Raises ValueError if the value ends early or a length is wrong."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ValueError(f"a field of {size} bytes starts at byte {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, layout: Struct) -> int:
        return int(layout.unpack(self.take(layout.size))[0])

    def varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"a varint has more than {_VARINT_BYTES_MAX} bytes")

    def uuid(self) -> UUID | None:
        raw = self.take(16)
        return UUID(bytes=raw) if any(raw) else None

    def string(self) -> str:
        return self.take(self._length()).decode()

    def count(self) -> int:
        """The length of an array, whose elements have at least one byte each."""
        count = self._length()
        if count > len(self._data) - self._position:
            raise ValueError(
                f"an array claims {count} elements at byte {self._position} of {len(self._data)}"
            )
        return count

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def _length(self) -> int:
        length = self.varint() - 1
        if length < 0:
            raise ValueError("a required field is null")
        return length


def read_leader_change(reader: ValueReader) -> QuorumMessage:
    version = reader.number(_INT16)
    leader_id = reader.number(_INT32)
    if version == 0:
        return leader_change_v0.LeaderChangeMessage(
            version=version,
            leader_id=leader_id,
            voters=_voters_v0(reader),
            granting_voters=_voters_v0(reader),
        )
    return leader_change_v1.LeaderChangeMessage(
        version=version, leader_id=leader_id, voters=_voters_v1(reader), granting_voters=_voters_v1(reader)
    )


def _voters_v0(reader: ValueReader) -> tuple[leader_change_v0.Voter, ...]:
    voters: list[leader_change_v0.Voter] = []
    for _ in range(reader.count()):
        voters.append(leader_change_v0.Voter(voter_id=reader.number(_INT32)))
        reader.skip_tags()
    return tuple(voters)


def _voters_v1(reader: ValueReader) -> tuple[leader_change_v1.Voter, ...]:
    voters: list[leader_change_v1.Voter] = []
    for _ in range(reader.count()):
        voters.append(
            leader_change_v1.Voter(voter_id=reader.number(_INT32), voter_directory_id=reader.uuid())
        )
        reader.skip_tags()
    return tuple(voters)


def read_snapshot_header(reader: ValueReader) -> QuorumMessage:
    return SnapshotHeaderRecord(
        version=reader.number(_INT16), last_contained_log_timestamp=reader.number(_INT64)
    )


def read_snapshot_footer(reader: ValueReader) -> QuorumMessage:
    return SnapshotFooterRecord(version=reader.number(_INT16))


def read_kraft_version(reader: ValueReader) -> QuorumMessage:
    return KRaftVersionRecord(version=reader.number(_INT16), k_raft_version=reader.number(_INT16))


def read_voters(reader: ValueReader) -> QuorumMessage:
    version = reader.number(_INT16)
    return voters_v0.VotersRecord(
        version=version, voters=tuple(_voter(reader) for _ in range(reader.count()))
    )


def _voter(reader: ValueReader) -> voters_v0.Voter:
    voter_id = reader.number(_INT32)
    directory_id = reader.uuid()
    endpoints: list[voters_v0.Endpoint] = []
    for _ in range(reader.count()):
        endpoints.append(
            voters_v0.Endpoint(name=reader.string(), host=reader.string(), port=reader.number(_UINT16))
        )
        reader.skip_tags()
    feature = voters_v0.KRaftVersionFeature(
        min_supported_version=reader.number(_INT16), max_supported_version=reader.number(_INT16)
    )
    reader.skip_tags()  # of the feature
    reader.skip_tags()  # of the voter
    return voters_v0.Voter(
        voter_id=voter_id,
        voter_directory_id=directory_id,
        endpoints=tuple(endpoints),
        k_raft_version_feature=feature,
    )
