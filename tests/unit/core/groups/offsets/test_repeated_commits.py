"""A repeated commit has the same effect as a full commit, byte for byte."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.groups.offsets.offsets_shell import OffsetsShell
from tests.unit.core.groups.transactional_shell import Written

from ottla.core.groups.commands import OffsetToCommit
from ottla.core.groups.offsets import repeated_commits
from ottla.core.groups.offsets.repeated_commits import CommitTemplate, CommitTemplates
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.codec import encode_key, encode_value

TOPIC_ID = uuid.UUID(int=7)
VERSION = 9
offsets_to_commit = st.builds(
    OffsetToCommit,
    topic=st.sampled_from(("orders", "påyments", "t" * 249)),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.none() | st.text(max_size=200),
    topic_id=st.sampled_from((TOPIC_ID, None)),
)


@given(
    st.lists(offsets_to_commit, min_size=1, max_size=80, unique_by=lambda each: (each.topic, each.partition))
)
def test_a_repeated_commit_writes_the_same_records_as_a_full_commit(offsets: list[OffsetToCommit]) -> None:
    plain, repeated = OffsetsShell(), OffsetsShell()
    for shell in (plain, repeated):
        shell.commit(*offsets)
        shell.advance(10)
    plain.commit(*offsets)
    repeated.commit_repeated(*offsets)
    written = [
        [(encode_key(each.key), encode_value(each.value)) for each in shell.log if isinstance(each, Written)]
        for shell in (plain, repeated)
    ]
    assert written[0] == written[1]
    assert plain.machine.durable_state() == repeated.machine.durable_state()


def test_the_group_checks_every_repeated_commit() -> None:
    shell = OffsetsShell()
    group = shell.add_group()
    offset = OffsetToCommit("t", 0, 5)
    shell.commit(offset)
    shell.commit_repeated(offset._replace(offset=6))
    group.rejection = KafkaError(ErrorCode.illegal_generation, "of an older generation")
    with pytest.raises(KafkaError, match="older generation"):
        shell.commit_repeated(offset._replace(offset=7))
    group.rejection = None
    assert shell.offset_of("t") == 6


def test_the_later_of_two_overlapping_templates_wins() -> None:
    shell = OffsetsShell()
    shell.commit(OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 1))
    shell.commit_repeated(OffsetToCommit("t", 0, 2), OffsetToCommit("t", 1, 2))
    shell.commit_repeated(OffsetToCommit("t", 0, 3))
    shell.commit_repeated(OffsetToCommit("t", 0, 4), OffsetToCommit("t", 1, 4))
    shell.commit_repeated(OffsetToCommit("t", 1, 5))
    assert (shell.offset_of("t", 0), shell.offset_of("t", 1)) == (4, 5)


def body(group: bytes, member: bytes = b"m", rest: bytes = bytes(12)) -> bytes:
    return bytes([len(group) + 1]) + group + bytes(4) + bytes([len(member) + 1]) + member + rest


def test_a_template_is_found_only_for_its_sender_until_it_is_cleared() -> None:
    templates = CommitTemplates()
    sent = body(b"g")
    assert not templates.is_repeated(sent, VERSION)
    assert templates.is_repeated(sent, VERSION)
    assert not templates.is_repeated(body(b"g", b"n"), VERSION)
    assert templates.find(sent, VERSION) is None
    shell = OffsetsShell()
    shell.commit_repeated(OffsetToCommit("t", 0, 1))
    (command,) = [template.command for template in shell.templates.values()]
    template = CommitTemplate(sent, [len(sent) - 12], command, b"")
    templates.add(sent, VERSION, template)
    assert templates.find(body(b"g", rest=b"\1" * 12), VERSION) is template
    assert templates.find(sent, VERSION + 1) is None
    assert templates.find(body(b"g", b"n"), VERSION) is None
    templates.clear()
    assert templates.find(sent, VERSION) is None


def test_the_oldest_of_too_many_senders_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_commits, "TEMPLATES_MAX", 2)
    templates = CommitTemplates()
    for group in (b"a", b"b", b"c"):
        assert not templates.is_repeated(body(group), VERSION)
    assert templates.is_repeated(body(b"c"), VERSION)
    assert not templates.is_repeated(body(b"a"), VERSION)


@pytest.mark.parametrize(
    "sent", [b"\xff\x01", b"\x02", body(b"g")[:6], b"\x02g" + bytes(4) + b"\xff" + bytes(300)]
)
def test_short_requests_and_long_names_have_no_template(sent: bytes) -> None:
    assert CommitTemplates().find(sent, VERSION) is None
