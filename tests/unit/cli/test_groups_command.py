"""`ottla groups`: its output and exit codes, with a fake cluster."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.admin import cluster, group_offsets, groups, offset_delete, reset_offsets
from ottla.admin.cluster import ClusterError
from ottla.admin.groups import GroupDescription, GroupListing, MemberDescription, PartitionLag
from ottla.admin.nodes import Node
from ottla.admin.offset_delete import DeletedOffset
from ottla.admin.reset_plan import PartitionOffsets, PlannedReset, Target, plan_reset
from ottla.cli.main import main
from ottla.model.ids import TopicPartition

MEMBER = MemberDescription(
    "a-1", None, "a", "10.0.0.1", [TopicPartition("orders", 0), TopicPartition("orders", 1)], None
)
TARGETED = MemberDescription("b-2", "i2", "b", "10.0.0.2", [], [TopicPartition("orders", 2)])
COORDINATOR = Node(1, "10.0.0.9", 9092)
DESCRIBED = GroupDescription("billing", "classic", "Stable", COORDINATOR, "range", [MEMBER, TARGETED])
EMPTY = GroupDescription("idle", "consumer", "Empty", COORDINATOR, "", [])
LAG = [
    PartitionLag("orders", 0, 5, 9, 4, "a-1", "a", "10.0.0.1"),
    PartitionLag("orders", 1, None, 3, None, "a-1", "a", "10.0.0.1"),
    PartitionLag("gone", 0, 7, None, None, None, None, None),
]
KNOWN = {
    TopicPartition("orders", 0): PartitionOffsets(0, 9, 5, 3),
    TopicPartition("orders", 1): PartitionOffsets(2, 3, None, None),
}


class Done(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


class NoCluster:
    def __init__(self, bootstrap: str) -> None:
        pass


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process, with no cluster behind it."""
    monkeypatch.setattr(cluster, "Cluster", NoCluster)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ottla", "groups", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capfd.readouterr())

    return run


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = {group.group: group for group in (DESCRIBED, EMPTY)}

    def describe(_: object, names: Sequence[str]) -> list[GroupDescription]:
        return [by_name[name] for name in names]

    monkeypatch.setattr(groups, "describe_groups", describe)
    monkeypatch.setattr(groups, "group_lag", lambda _, group: LAG if group is DESCRIBED else [])


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[PlannedReset]:
    """The plan that a reset executed; it has two partitions."""
    done: list[PlannedReset] = []

    def plan(_: object, group: str, target: Target, scopes: object) -> list[PlannedReset]:
        return plan_reset(target, KNOWN)

    monkeypatch.setattr(reset_offsets, "plan_group_reset", plan)
    monkeypatch.setattr(reset_offsets, "execute_reset", lambda _, group, plan: done.extend(plan))
    return done


def in_one_line(text: str) -> str:
    """Typer breaks long messages into lines inside a frame."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["list", "--state", "odd"], "'odd' is not one of Empty, Stable"),
        (["list", "--type", "share"], "'share' is not one of classic, consumer"),
        (["describe"], "Missing argument"),
        (["reset-offsets", "g", "--topic", "t"], "set exactly one of --to-earliest, --to-latest"),
        (["reset-offsets", "g", "-t", "t", "--to-latest", "--shift-by", "1"], "set exactly one of"),
        (["reset-offsets", "g", "--to-latest"], "set the topics: --topic NAME"),
        (["reset-offsets", "g", "-t", "t", "--all-topics", "--to-latest"], "set the topics"),
        (["reset-offsets", "g", "-t", "t", "--from-file", "f"], "set the topics"),
        (["reset-offsets", "g", "-t", "t:x", "--to-latest"], "expected NAME, or NAME:PARTITIONS"),
        (
            ["reset-offsets", "g", "-t", "t", "--by-duration", "1h"],
            "'1h' is not a duration: expected PnDTnHnMnS",
        ),
        (
            ["reset-offsets", "g", "-t", "t", "--to-datetime", "noon"],
            "'noon' is not a time: expected YYYY-MM-DD",
        ),
        (["reset-offsets", "g", "-t", "t", "--to-offset", "-1"], "--to-offset"),
        (["reset-offsets", "g", "-t", "t", "--to-latest", "--export", "--json"], "exclude each other"),
        (["delete", "g", "--topic", ":0"], "expected NAME, or NAME:PARTITIONS"),
    ],
)
def test_wrong_usage_ends_with_code_2_and_says_what_is_expected(
    ottla: Run, arguments: list[str], error: str
) -> None:
    done = ottla(*arguments)
    assert done.code == 2
    assert error in in_one_line(done.err)


def test_groups_are_listed_by_state_and_type_in_any_case(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    used = {}

    def listed(_: object, **filters: object) -> list[GroupListing]:
        used.update(filters)
        return [GroupListing("billing", "classic", "Stable", 2)]

    monkeypatch.setattr(groups, "list_groups", listed)
    done = ottla("list", "--state", "STABLE", "--state", "empty", "--type", "Classic")
    assert used == {"states": ["Stable", "Empty"], "types": ["classic"]}
    assert done.out == "GROUP    TYPE     STATE   MEMBERS\nbilling  classic  Stable        2\n"
    assert ottla("list", "--json").lines == [
        {"group": "billing", "type": "classic", "state": "Stable", "members": 2}
    ]


def test_an_empty_list_is_reported_on_stderr(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "list_groups", lambda _, **filters: [])
    assert ottla("list") == (0, "", "No groups.\n")
    assert ottla("list", "--json") == (0, "", "")


@pytest.mark.usefixtures("described")
def test_describe_shows_the_group_with_lag_and_owner_of_each_partition(ottla: Run) -> None:
    done = ottla("describe", "billing", "idle")
    assert done.code == 0
    assert done.out == (
        "billing  (classic, Stable, 2 members)\n"
        "coordinator 1 (10.0.0.9:9092), assignor range\n"
        "lag 4 in 3 partitions\n"
        "\n"
        "TOPIC   PARTITION  COMMITTED  LOG END  LAG  OWNER  CLIENT ID  HOST\n"
        "orders          0          5        9    4  a-1    a          10.0.0.1\n"
        "orders          1          -        3    -  a-1    a          10.0.0.1\n"
        "gone            0          7        -    -  -      -          -\n"
        "\n"
        "idle  (consumer, Empty, 0 members)\n"
        "coordinator 1 (10.0.0.9:9092)\n"
    )


@pytest.mark.usefixtures("described")
def test_describe_as_json_includes_members_and_partitions(ottla: Run) -> None:
    (group,) = ottla("describe", "billing", "--json").lines
    assert group["coordinator"] == {"id": 1, "host": "10.0.0.9", "port": 9092}
    assert group["partitions"] == [line._asdict() for line in LAG]
    assert group["members"] == [
        {
            "member_id": "a-1",
            "instance_id": None,
            "client_id": "a",
            "host": "10.0.0.1",
            "assignment": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
            "target": None,
        },
        {
            "member_id": "b-2",
            "instance_id": "i2",
            "client_id": "b",
            "host": "10.0.0.2",
            "assignment": [],
            "target": [{"topic": "orders", "partition": 2}],
        },
    ]


@pytest.mark.usefixtures("described")
def test_members_are_shown_with_their_partitions_if_verbose(ottla: Run) -> None:
    short = ottla("members", "billing", "idle")
    assert "ASSIGNMENT" not in short.out
    assert short.err == "Group idle has no members\n"
    head, first, second = ottla("members", "billing", "--verbose").out.splitlines()
    assert head.endswith("PARTITIONS  ASSIGNMENT  TARGET")
    assert first.split() == ["billing", "a-1", "-", "a", "10.0.0.1", "2", "orders:0,1", "-"]
    assert second.split() == ["billing", "b-2", "i2", "b", "10.0.0.2", "0", "orders:2"]


@pytest.mark.usefixtures("described")
def test_each_line_of_offsets_has_the_group(ottla: Run) -> None:
    lines = ottla("offsets", "billing", "idle", "--json").lines
    assert lines == [{"group": "billing"} | line._asdict() for line in LAG]
    assert ottla("offsets", "idle") == (0, "", "No committed offsets.\n")


def test_a_reset_changes_nothing_unless_it_is_executed(ottla: Run, executed: list[PlannedReset]) -> None:
    done = ottla("reset-offsets", "g", "--topic", "orders", "--to-earliest")
    assert done.code == 0
    assert done.out == (
        "TOPIC   PARTITION  COMMITTED  NEW OFFSET\n"
        "orders          0          5           0\n"
        "orders          1          -           2\n"
    )
    assert done.err == "Nothing was changed for group g; --execute commits the new offsets.\n"
    assert executed == []


def test_an_executed_reset_commits_the_offsets_that_it_shows(
    ottla: Run, executed: list[PlannedReset]
) -> None:
    done = ottla("reset-offsets", "g", "--all-topics", "--to-offset", "8", "--execute", "--json")
    assert done.err == "orders-1: offset 8 is after the log end offset: 3 is used\n"
    assert [(line.partition, line.new_offset) for line in executed] == [(0, 8), (1, 3)]
    assert done.lines == [{"group": "g"} | line._asdict() | {"executed": True} for line in executed]


def test_a_reset_to_a_time_shows_the_time(ottla: Run, executed: list[PlannedReset]) -> None:
    done = ottla("reset-offsets", "g", "-t", "orders", "--to-datetime", "2026-01-31T13:00:00+01:00")
    assert "These are the offsets at 2026-01-31T12:00:00.000Z." in done.err
    assert "orders-1: no record is so late" in done.err


@pytest.mark.usefixtures("executed")
def test_a_reset_reads_the_file_that_an_export_wrote(ottla: Run, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(ottla("reset-offsets", "g", "-t", "orders", "--to-earliest", "--export").out)
    assert file.read_text() == "orders,0,0\norders,1,2\n"
    lines = ottla("reset-offsets", "g", "--from-file", str(file), "--json").lines
    assert [line["new_offset"] for line in lines] == [0, 2]


@pytest.mark.parametrize(
    ("content", "error"), [(None, "cannot be read: No such file"), ("orders,0", "line 1: expected topic")]
)
def test_a_malformed_file_ends_with_code_1_and_the_name_of_the_file(
    ottla: Run, tmp_path: Path, content: str | None, error: str
) -> None:
    file = tmp_path / "offsets.csv"
    if content is not None:
        file.write_text(content)
    done = ottla("reset-offsets", "g", "--from-file", str(file))
    assert done.code == 1
    assert f"{file}" in done.err
    assert error in done.err


def test_an_error_for_one_group_does_not_stop_the_deletion_of_others(
    ottla: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(_: object, name: str) -> None:
        if name == "busy":
            raise ClusterError("Group busy was not deleted: it has members")

    monkeypatch.setattr(groups, "delete_group", delete)
    done = ottla("delete", "busy", "idle")
    assert done == (1, "Deleted group idle\n", "ottla: Group busy was not deleted: it has members\n")
    assert ottla("delete", "busy", "idle", "--json").lines == [
        {"group": "busy", "deleted": False, "error": "Group busy was not deleted: it has members"},
        {"group": "idle", "deleted": True, "error": None},
    ]
    assert ottla("delete", "idle").code == 0


def test_each_offset_that_is_deleted_or_not_is_reported(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(_: object, group: str, scopes: object) -> list[DeletedOffset]:
        assert scopes == [group_offsets.TopicScope("orders", (0, 1))]
        return [DeletedOffset("orders", 0, None), DeletedOffset("orders", 1, "subscribed")]

    monkeypatch.setattr(offset_delete, "delete_offsets", delete)
    done = ottla("delete", "g", "--topic", "orders:0,1")
    assert done.code == 1
    assert done.out == "Deleted the offset of group g for orders-0\n"
    assert done.err == "ottla: Not deleted: the offset of group g for orders-1: subscribed\n"
    assert ottla("delete", "g", "-t", "orders:0,1", "--json").lines == [
        {"group": "g", "topic": "orders", "partition": 0, "deleted": True, "error": None},
        {
            "group": "g",
            "topic": "orders",
            "partition": 1,
            "deleted": False,
            "error": "Not deleted: the offset of group g for orders-1: subscribed",
        },
    ]
