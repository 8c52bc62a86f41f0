"""The records of the log and of its snapshots that say who votes: KRaftVersionRecord, VotersRecord (KIP-853)."""

from collections.abc import Iterable, Sequence

from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature, VotersRecord
from kio.schema.voters_record.v0.data import Voter as RecordedVoter

from ottla.core.raft.voter_set import (
    KRaftVersion,
    LoggedMembership,
    MembershipRecord,
    Voter,
    VoterEndpoint,
    VoterSet,
)
from ottla.records.control import ControlMessage, read_control_record
from ottla.records.records import Batch, read_batches


def encode_membership(records: Iterable[MembershipRecord]) -> list[ControlMessage]:
    return [
        KRaftVersionRecord(version=0, k_raft_version=record.level)
        if isinstance(record, KRaftVersion)
        else VotersRecord(version=0, voters=tuple(map(_encode_voter, record.voters)))
        for record in records
    ]


def _encode_voter(voter: Voter) -> RecordedVoter:
    low, high = voter.kraft_versions
    return RecordedVoter(
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        endpoints=tuple(Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints),
        k_raft_version_feature=KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )


def decode_membership(message: ControlMessage | None) -> MembershipRecord | None:
    """None for other control records."""
    match message:
        case KRaftVersionRecord():
            return KRaftVersion(int(message.k_raft_version))
        case VotersRecord():
            return VoterSet.of(map(_decode_voter, message.voters))
    return None


def _decode_voter(voter: RecordedVoter) -> Voter:
    feature = voter.k_raft_version_feature
    return Voter(
        int(voter.voter_id),
        voter.voter_directory_id,
        tuple(VoterEndpoint(each.name, each.host, int(each.port)) for each in voter.endpoints),
        (int(feature.min_supported_version), int(feature.max_supported_version)),
    )


def membership_of_batch(data: bytes | memoryview) -> tuple[LoggedMembership, ...]:
    """Of a control batch. Raises KafkaError if it is damaged."""
    return tuple(_membership(read_batches(bytes(data))))


def membership_of_snapshot(data: bytes) -> tuple[MembershipRecord, ...]:
    return tuple(record for _, record in _membership(read_batches(data)))


def _membership(batches: Sequence[Batch]) -> Iterable[LoggedMembership]:
    for batch in batches:
        for record in batch.records if batch.header.is_control else ():
            found = decode_membership(read_control_record(record))
            if found is not None:
                yield LoggedMembership(record.offset, found)
