import errno
import json
import uuid
from itertools import count

import pytest
from tests.unit.storage.log_builder import NOW_MS, SMALL, fill, offsets_of, read_all, sim_disk

from ottla.env.real_disk import RealDisk
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, uuid_to_string
from ottla.storage.log_dirs import LogDirs
from ottla.storage.meta_properties import UnusableDirectoryError

CLUSTER = "AAAAAAAAAAAAAAAAAAAABQ"


def new_ids():
    numbers = count(1)
    return lambda: uuid.UUID(int=next(numbers))


def partition(index: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, index)


def open_dirs(*paths, disk=None) -> LogDirs:
    return LogDirs(disk or RealDisk(), [str(path) for path in paths])


def begin(dirs: LogDirs) -> LogDirs:
    """As a broker does before it opens logs."""
    for removal in dirs.clean_shutdown_removals():
        removal.sync()
    return dirs


def test_a_new_partition_goes_to_the_directory_with_the_fewest(tmp_path):
    dirs = open_dirs(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for index in range(7):
        dirs.open(partition(index), SMALL, NOW_MS)
    assert [len(list((tmp_path / name).glob("orders-*"))) for name in "abc"] == [3, 2, 2]
    assert dirs.directory_of(partition(1)) == str(tmp_path / "b")
    in_c = dirs.open(partition(7), SMALL, NOW_MS, in_directory=str(tmp_path / "c"))
    assert in_c.directory == str(tmp_path / "c" / "orders-7")
    assert dirs.open(partition(7), SMALL, NOW_MS) is in_c
    dirs.release()


def test_logs_and_offsets_survive_a_clean_shutdown(tmp_path):
    dirs = open_dirs(tmp_path)
    topic_id = uuid.UUID(int=99)
    log = dirs.open(partition(0), SMALL, NOW_MS, topic_id=topic_id)
    fill(log, 30)
    log.delete_records_before(7)
    dirs.close(broker_epoch=12, high_watermarks={partition(0): 50})
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 12}
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 60\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 7\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 50\n"
    assert (tmp_path / "orders-0" / "partition.metadata").read_text() == (
        f"version: 0\ntopic_id: {uuid_to_string(topic_id)}"
    )
    dirs = begin(open_dirs(tmp_path))
    assert dirs.last_broker_epoch == 12
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "a crash from now on must show"
    assert dirs.partitions == [partition(0)]
    assert dirs.high_watermarks == {partition(0): 50}
    log = dirs.open(partition(0), SMALL, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (7, 60, topic_id)
    dirs.release()


def test_a_start_that_fails_before_it_opens_logs_changes_nothing_about_a_clean_shutdown():
    disk = sim_disk()
    dirs = open_dirs("/data/a", "/data/b", disk=disk)
    for index in range(2):
        fill(dirs.open(partition(index), SMALL, NOW_MS), 30)
    dirs.close(broker_epoch=12, high_watermarks={})
    for _ in range(2):
        dirs = open_dirs("/data/a", "/data/b", disk=disk)
        assert dirs.last_broker_epoch == 12
        assert dirs.was_closed_cleanly(partition(0))
        dirs.release()
    dirs = open_dirs("/data/a", "/data/b", disk=disk)
    dirs.open(partition(0), SMALL, NOW_MS)  # not even without `clean_shutdown_removals`
    disk.crash()
    dirs = open_dirs("/data/a", "/data/b", disk=disk.reopen())
    assert dirs.last_broker_epoch == -1
    assert [dirs.was_closed_cleanly(partition(index)) for index in range(2)] == [False, True]


def test_a_removal_of_the_clean_shutdown_file_that_could_not_be_synced_is_repeated():
    disk = sim_disk()
    open_dirs("/data", disk=disk).close(broker_epoch=12, high_watermarks={})
    dirs = open_dirs("/data", disk=disk)
    disk.fail("/data", errno.EMFILE, operations=frozenset({"sync_dir"}), times=1)
    with pytest.raises(OSError):
        begin(dirs)
    begin(dirs)
    disk.crash()
    assert open_dirs("/data", disk=disk.reopen()).last_broker_epoch == -1


def test_a_crash_is_followed_by_recovery():
    disk = sim_disk()
    dirs = open_dirs("/data", disk=disk)
    fill(dirs.open(partition(0), SMALL, NOW_MS), 30)
    disk.kill()
    dirs = open_dirs("/data", disk=disk.reopen())
    assert dirs.last_broker_epoch == -1
    assert offsets_of(read_all(dirs.open(partition(0), SMALL, NOW_MS))) == list(range(60))


def test_a_directory_in_use_is_rejected_by_name(tmp_path):
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    with pytest.raises(
        UnusableDirectoryError, match=f"{tmp_path / 'b'} is in use by another broker: stop that one"
    ):
        open_dirs(tmp_path / "c", tmp_path / "b")
    dirs.release()
    open_dirs(tmp_path / "c", tmp_path / "b", tmp_path / "a").release()


def test_new_directories_get_an_identity_and_keep_it(tmp_path):
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    assert dirs.known_cluster_id is None
    assert dirs.identify(3, new_ids(), CLUSTER) == CLUSTER
    assert dirs.directory_ids == {
        str(tmp_path / "a"): uuid.UUID(int=1),
        str(tmp_path / "b"): uuid.UUID(int=2),
    }
    dirs.release()
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    assert dirs.known_cluster_id == CLUSTER
    assert dirs.identify(3, new_ids()) == CLUSTER
    dirs.release()


def test_the_meta_properties_of_kafka_can_be_read(tmp_path):
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Jan 04 10:11:12 UTC 2025\ncluster.id=abc\\=d\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
        "node.id=3\nversion=1\n"
    )
    dirs = open_dirs(tmp_path)
    assert dirs.identify(3, new_ids()) == "abc=d"
    dirs.release()


def test_a_directory_of_another_node_or_cluster_is_rejected_with_both_values(tmp_path):
    dirs = open_dirs(tmp_path / "a")
    dirs.identify(3, new_ids(), CLUSTER)
    with pytest.raises(
        UnusableDirectoryError, match=r"belongs to node 3, and this is node 4: start with node\.id=3"
    ):
        dirs.identify(4, new_ids())
    with pytest.raises(
        UnusableDirectoryError,
        match=f"belongs to cluster {CLUSTER}, but this broker's configuration says other",
    ):
        dirs.identify(3, new_ids(), "other")
    dirs.release()
    dirs = open_dirs(tmp_path / "b")
    dirs.identify(3, new_ids(), "other")
    dirs.release()
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    with pytest.raises(
        UnusableDirectoryError, match=f"belongs to cluster other, but {tmp_path / 'a'} says {CLUSTER}"
    ):
        dirs.identify(3, new_ids())
    dirs.release()


@pytest.mark.parametrize(
    "text",
    [
        "version=0\nbroker.id=1\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=x\nnode.id=q\n",
        "version=1\ncluster.id=\udcff\n",
    ],
)
def test_unusable_meta_properties_are_rejected_with_their_path(tmp_path, text):
    (tmp_path / "meta.properties").write_text(text, errors="surrogateescape")
    with pytest.raises(UnusableDirectoryError, match=str(tmp_path / "meta.properties")):
        open_dirs(tmp_path)
    (tmp_path / "meta.properties").unlink()
    open_dirs(tmp_path).release()  # the lock was released


def test_a_partition_in_two_directories_is_rejected(tmp_path):
    for name in "ab":
        (tmp_path / name / "orders-0").mkdir(parents=True)
    with pytest.raises(UnusableDirectoryError, match="orders-0 lies both in"):
        open_dirs(tmp_path / "a", tmp_path / "b")


def test_a_deleted_partition_can_be_created_again_before_its_files_are_removed(tmp_path):
    dirs = open_dirs(tmp_path)
    fill(dirs.open(partition(0), SMALL, NOW_MS), 10)
    for checkpoint in dirs.recovery_point_checkpoints():
        checkpoint.write()
        checkpoint.complete()
    dirs.delete(partition(0), uuid.UUID(int=1), NOW_MS)
    assert dirs.partitions == []
    log = dirs.open(partition(0), SMALL, NOW_MS)
    assert log.log_end_offset == 0
    assert dirs.due_deletions(NOW_MS) == []
    [deletion] = dirs.due_deletions(NOW_MS + SMALL.file_delete_delay_ms)
    deletion.perform(RealDisk())
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["orders-0"]
    dirs.release()


def test_an_interrupted_deletion_is_completed_at_the_next_start(tmp_path):
    dirs = open_dirs(tmp_path)
    dirs.open(partition(0), SMALL, NOW_MS)
    dirs.delete(partition(0), uuid.UUID(int=1), NOW_MS)
    dirs.close(0, {})
    dirs = open_dirs(tmp_path)
    assert dirs.partitions == []
    for deletion in dirs.due_deletions(NOW_MS):
        deletion.perform(RealDisk())
    assert not list(tmp_path.glob("*-delete"))
    dirs.release()


def test_a_failed_disk_takes_only_its_own_partitions_offline():
    disk = sim_disk()
    dirs = open_dirs("/data/a", "/data/b", disk=disk)
    logs = [dirs.open(partition(index), SMALL, NOW_MS) for index in range(4)]
    disk.fail("/data/a", errno.EIO)
    with pytest.raises(OSError) as raised:
        fill(logs[0], 1)
    error = dirs.handle_error(partition(0), raised.value)
    assert error.code is ErrorCode.kafka_storage_error
    assert "orders-0 is not available: /data/a is offline" in error.message
    assert dirs.paths == ["/data/b"]
    assert list(dirs.offline) == ["/data/a"]
    assert set(dirs.logs) == {partition(1), partition(3)}
    fill(logs[1], 3)
    with pytest.raises(KafkaError, match="may be in /data/a, which is offline") as refused:
        dirs.open(partition(2), SMALL, NOW_MS)
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert dirs.open(partition(9), SMALL, NOW_MS, is_new=True).directory == "/data/b/orders-9"
    dirs.close(1, {})
    assert disk.exists("/data/b/.kafka_cleanshutdown")


def test_a_directory_that_fails_at_the_start_is_offline():
    disk = sim_disk()
    open_dirs("/data/a", "/data/b", disk=disk).close(broker_epoch=12, high_watermarks={})
    disk.fail("/data/a", errno.EIO)
    dirs = open_dirs("/data/a", "/data/b", disk=disk)
    assert list(dirs.offline) == ["/data/a"]
    assert dirs.last_broker_epoch == -1, "nobody knows what it has lost"
    dirs.release()
    disk.fail("/data/b", errno.EIO)
    with pytest.raises(
        UnusableDirectoryError, match=r"no data directory can be used: /data/a: .*; /data/b: "
    ):
        open_dirs("/data/a", "/data/b", disk=disk)


def test_an_unreadable_checkpoint_causes_a_recovery_but_loses_no_records(tmp_path, caplog):
    dirs = open_dirs(tmp_path)
    fill(dirs.open(partition(0), SMALL, NOW_MS), 30)
    dirs.close(1, {})
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders zero 60\n")
    dirs = open_dirs(tmp_path)
    assert "'orders zero 60'" in caplog.text
    assert dirs.open(partition(0), SMALL, NOW_MS).log_end_offset == 60
    dirs.release()


CHECKPOINT_FILES = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    "orders-0/leader-epoch-checkpoint",
]


@pytest.mark.parametrize("content", [b"0\n\xff\xfe\n", "0\n²\n".encode()], ids=["no-text", "no-number"])
@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_a_checkpoint_with_foreign_bytes_is_named_and_loses_no_records(tmp_path, caplog, name, content):
    dirs = open_dirs(tmp_path)
    fill(dirs.open(partition(0), SMALL, NOW_MS), 30)
    dirs.close(1, {})
    (tmp_path / name).write_bytes(content)
    dirs = open_dirs(tmp_path)
    assert dirs.open(partition(0), SMALL, NOW_MS).log_end_offset == 60
    assert str(tmp_path / name) in caplog.text
    dirs.release()


@pytest.mark.parametrize(
    "content", [b"version: 0\ntopic_id: \xff\xff", b"garbage", b"version: 0\ntopic_id: x\n" * 3]
)
def test_an_unreadable_partition_metadata_is_named_and_changes_nothing(tmp_path, content):
    dirs = open_dirs(tmp_path)
    fill(dirs.open(partition(0), SMALL, NOW_MS, topic_id=uuid.UUID(int=7)), 30)
    dirs.close(1, {})
    path = tmp_path / "orders-0" / "partition.metadata"
    path.write_bytes(content)
    dirs = open_dirs(tmp_path)
    with pytest.raises(KafkaError, match=str(path)):
        dirs.open(partition(0), SMALL, NOW_MS, topic_id=uuid.UUID(int=7))
    assert path.read_bytes() == content
    path.unlink()  # as the message says
    log = dirs.open(partition(0), SMALL, NOW_MS, topic_id=uuid.UUID(int=7))
    assert (log.log_end_offset, log.topic_id) == (60, uuid.UUID(int=7))
    dirs.release()


@pytest.mark.parametrize("written", range(43))
def test_a_partition_metadata_cut_off_by_a_power_loss_is_written_again(tmp_path, written):
    dirs = open_dirs(tmp_path)
    dirs.open(partition(0), SMALL, NOW_MS, topic_id=uuid.UUID(int=7))
    dirs.close(1, {})
    path = tmp_path / "orders-0" / "partition.metadata"
    whole = path.read_bytes()
    path.write_bytes(whole[:written].ljust(written % 2 * len(whole), b"\0"))
    dirs = open_dirs(tmp_path)
    dirs.open(partition(0), SMALL, NOW_MS, topic_id=uuid.UUID(int=7))
    assert path.read_bytes() == whole
    dirs.release()


@pytest.mark.parametrize(
    "folder",
    ["orders-0", "__cluster_metadata-0", "orders-0.1f-stray", "orders-0.1f-delete", "orders-0.1f-future"],
)
def test_a_directory_with_data_but_no_identity_is_rejected(tmp_path, folder):
    (tmp_path / folder).mkdir()
    dirs = open_dirs(tmp_path)
    with pytest.raises(
        UnusableDirectoryError, match=r"meta\.properties is missing, but the directory has data"
    ):
        dirs.identify(1, new_ids(), CLUSTER)
    dirs.release()
    assert not (tmp_path / "meta.properties").exists()


def test_a_stray_folder_keeps_its_files_and_its_offsets_are_not_used_again(tmp_path, caplog):
    dirs = open_dirs(tmp_path)
    fill(dirs.open(partition(0), SMALL, NOW_MS, topic_id=uuid.UUID(int=7)), 30)
    dirs.logs[partition(0)].delete_records_before(20)
    dirs.open(partition(1), SMALL, NOW_MS)
    dirs.close(1, {partition(0): 60})
    dirs = open_dirs(tmp_path)
    data = {path.name: path.read_bytes() for path in (tmp_path / "orders-0").iterdir()}
    dirs.mark_strays([partition(0)], new_ids())
    for sync in dirs.deletion_syncs():
        sync.sync()
        sync.complete()
    (stray,) = tmp_path.glob("*-stray")
    assert stray.name == f"orders-0.{uuid.UUID(int=1).hex}-stray"
    assert {path.name: path.read_bytes() for path in stray.iterdir()} == data
    assert str(stray) in caplog.text
    dirs.release()  # as in a crash
    dirs = open_dirs(tmp_path)
    assert dirs.partitions == [partition(1)]
    assert partition(0) not in dirs.high_watermarks
    log = dirs.open(partition(0), SMALL, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert dirs.due_deletions(NOW_MS * 2) == []
    dirs.close(2, {})
    assert {path.name: path.read_bytes() for path in stray.iterdir()} == data


def test_an_incomplete_copy_is_removed_only_if_its_original_exists(tmp_path):
    for name in ("orders-0", f"orders-0.{7:032x}-future", f"orders-1.{7:032x}-future"):
        (tmp_path / name).mkdir()
    (tmp_path / f"orders-1.{7:032x}-future" / "partition.metadata").write_bytes(b"\xff damaged")
    dirs = open_dirs(tmp_path)
    assert [deletion.path for deletion in dirs.due_deletions(NOW_MS)] == [
        str(tmp_path / f"orders-0.{7:032x}-future")
    ]
    dirs.release()


def test_partitions_that_were_not_opened_keep_their_checkpoint_entries_and_are_recovered_later():
    disk = sim_disk()
    dirs = open_dirs("/data", disk=disk)
    fill(dirs.open(partition(0), SMALL, NOW_MS), 30)
    dirs.open(partition(1), SMALL, NOW_MS)
    dirs.close(1, {partition(0): 60})
    disk.kill()
    disk = disk.reopen()
    dirs = open_dirs("/data", disk=disk)
    dirs.open(partition(1), SMALL, NOW_MS)
    dirs.close(2, {})
    dirs = begin(open_dirs("/data", disk=disk))
    assert dirs.last_broker_epoch == 2
    assert dirs.high_watermarks[partition(0)] == 60
    disk.kill()  # now the directory needs recovery
    disk = disk.reopen()
    dirs = open_dirs("/data", disk=disk)
    dirs.open(partition(1), SMALL, NOW_MS)
    dirs.close(3, {})
    assert not disk.exists("/data/.kafka_cleanshutdown"), "orders-0 was not recovered"


def test_folders_that_are_not_partitions_are_ignored(tmp_path):
    for name in ("lost+found", "orders-0-stray", "notes", "orders-x", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
    dirs = open_dirs(tmp_path)
    assert dirs.partitions == []
    dirs.close(1, {})
    assert (tmp_path / "notes").exists()
    assert (tmp_path / "orders-0-stray").exists()


def test_opening_a_partition_after_a_clean_shutdown_reads_no_log_data():
    disk = sim_disk()
    dirs = open_dirs("/data", disk=disk)
    for index in range(20):
        fill(dirs.open(partition(index), SMALL, NOW_MS, topic_id=uuid.UUID(int=7)), 40)
    segments = sum(len(log.segments) for log in dirs.logs.values())
    dirs.close(1, {})
    disk.stats.operations.clear()
    disk.stats.bytes_read = 0
    dirs = open_dirs("/data", disk=disk)
    for found in dirs.partitions:
        dirs.open(found, SMALL, NOW_MS)
    assert len(dirs.logs) == 20
    assert disk.stats.operations["list_dir"] == 1 + 20
    assert disk.stats.operations["read"] <= 10 + 3 * 20  # snapshot, leader epochs, partition.metadata
    assert (
        disk.stats.operations["stat"] <= 1 + 20 + 2 * segments
    )  # the directory; sizes of .log and .txnindex
    assert disk.stats.bytes_read < 150 * 20
    assert not disk.stats.operations.keys() & {"open", "map", "write"}


def test_logs_of_new_partitions_can_be_created_ahead_in_a_thread():
    dirs = open_dirs("/data/a", "/data/b", disk=sim_disk())
    works = [dirs.prepare_creation(partition(index), SMALL, NOW_MS, uuid.UUID(int=7)) for index in range(4)]
    assert [dirs.directory_of(partition(index)) for index in range(4)] == ["/data/a", "/data/b"] * 2
    for work in works:
        assert work is not None
        work()
    log = dirs.open(partition(3), SMALL, NOW_MS, topic_id=uuid.UUID(int=7), is_new=True)
    assert (log.directory, log.topic_id) == ("/data/b/orders-3", uuid.UUID(int=7))
    assert dirs.prepare_creation(partition(3), SMALL, NOW_MS, uuid.UUID(int=7)) is None
    dirs.release()


def test_logs_are_not_created_ahead_in_a_cordoned_directory_while_there_is_another():
    dirs = open_dirs("/data/a", "/data/b", disk=sim_disk())
    dirs.cordoned = frozenset({"/data/a"})
    for index in range(3):
        assert dirs.prepare_creation(partition(index), SMALL, NOW_MS, uuid.UUID(int=7)) is not None
        assert dirs.directory_of(partition(index)) == "/data/b"
    dirs.cordoned = frozenset(dirs.paths)
    assert dirs.prepare_creation(partition(3), SMALL, NOW_MS, uuid.UUID(int=7)) is not None
    assert dirs.directory_of(partition(3)) == "/data/a"  # as `open`: all are cordoned, and it has the fewest
    dirs.release()


def test_a_log_that_could_not_be_created_ahead_is_opened_in_another_directory():
    disk = sim_disk()
    dirs = open_dirs("/data/a", "/data/b", disk=disk)
    work = dirs.prepare_creation(partition(0), SMALL, NOW_MS, uuid.UUID(int=7))
    assert work is not None
    disk.fail("/data/a", errno.EIO)
    work()
    assert not dirs.offline  # the thread only tries
    assert dirs.open(partition(0), SMALL, NOW_MS, is_new=True).directory == "/data/b/orders-0"
    assert list(dirs.offline) == ["/data/a"]
    dirs.release()


def test_a_log_created_ahead_in_a_directory_that_goes_offline_is_created_again_in_another():
    disk = sim_disk()
    dirs = open_dirs("/data/a", "/data/b", disk=disk)
    work = dirs.prepare_creation(partition(0), SMALL, NOW_MS, uuid.UUID(int=7))
    assert work is not None
    work()
    disk.fail("/data/a", errno.EIO)
    dirs.handle_error(partition(0), OSError(errno.EIO, "the disk fails"))
    assert dirs.open(partition(0), SMALL, NOW_MS, is_new=True).directory == "/data/b/orders-0"
    dirs.release()


def test_a_partition_is_not_created_ahead_before_the_deletion_of_its_name_is_synced():
    dirs = open_dirs("/data/a", disk=sim_disk())
    dirs.open(partition(0), SMALL, NOW_MS)
    dirs.delete(partition(0), uuid.UUID(int=5), NOW_MS)
    assert dirs.prepare_creation(partition(0), SMALL, NOW_MS, uuid.UUID(int=7)) is None
    for sync in dirs.deletion_syncs():
        sync.sync()
        sync.complete()
    assert dirs.prepare_creation(partition(0), SMALL, NOW_MS, uuid.UUID(int=7)) is not None
    dirs.release()
