"""Faults that are planted into replication, each found by a checker of the cluster simulation within a few seeds."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.simulation.test_replication_scenarios import (
    Scenario,
    deliver_a_late_expansion,
    diverge_in_a_power_loss,
    elect_twice,
    restart_without_the_high_watermark,
    run_scenario,
    truncate_a_waiting_produce,
)

import ottla.broker.coordinators.shard_loader as shard_loader
import ottla.core.controller.alter_partition as alter_partition
import ottla.core.controller.partition_change as partition_change
from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.replication.replica_fetcher import ReplicaFetcher
from ottla.core.controller.commands import ConfigChange, ConfigOp, IncrementalAlterConfigs
from ottla.core.controller.image import ConfigResource, MetadataImage
from ottla.core.groups.shard import GroupShard
from ottla.core.partition.in_sync_replicas import Follower
from ottla.core.partition.leader import PartitionLeader
from ottla.core.partition.role import PartitionRole
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.cluster_programs import Committer
from ottla.sim.cluster_workload import run_cluster_workload
from ottla.sim.env import simulate
from ottla.sim.group_client import GroupClient
from ottla.sim.history import Violation
from ottla.sim.node import PROFILE
from ottla.sim.partition_clients import create_topic_with_retries
from ottla.storage import directory_choice, log_dirs
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs
from ottla.storage.replica_move import LastCopy

_TWO_DIRECTORIES = {"log.dirs": "/data/one,/data/two", "metadata.log.dir": "/data/metadata"}
# At most: the first violation ends the search. The rarest bug is found by one seed in ten.
_SEEDS = 60


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    add = ReplicaFetcher.add

    def truncate_and_add(self: ReplicaFetcher, hosted: Any, follower: Any) -> None:
        hosted.truncate(max(follower.high_watermark, hosted.log.log_start_offset), 0)
        add(self, hosted, follower)

    patch.setattr(ReplicaFetcher, "add", truncate_and_add)


def acknowledge_before_replication(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Any, now_ms: int) -> bool:
        has_moved = self._offsets.end > self.high_watermark
        self.high_watermark = self._offsets.end
        self._producers.on_high_watermark(self.high_watermark)
        return bool(has_moved)

    patch.setattr(PartitionLeader, "_advance_high_watermark", advance)


def count_a_lagging_follower(patch: pytest.MonkeyPatch) -> None:
    on_fetch = Follower.on_fetch

    def count_all(
        self: Follower, offset: int, start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        on_fetch(self, leader_end_offset, start_offset, leader_end_offset, now_ms)

    patch.setattr(Follower, "on_fetch", count_all)


def count_a_diverging_follower(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLeader, "diverging_epoch", lambda self, epoch, offset: None)


def elect_outside_the_isr(patch: pytest.MonkeyPatch) -> None:
    elect = partition_change._elect

    def elect_any(partition: Any, target: Any, state: Any, election: Any, rules: Any) -> Any:
        for replica, directory in zip(state.replicas, state.directories, strict=True):
            if replica not in state.isr and rules.may_lead(replica, directory):
                state.isr = (*state.isr, replica)
        return elect(partition, target, state, election, rules)

    patch.setattr(partition_change, "_elect", elect_any)


def lose_producer_state_at_failover(patch: pytest.MonkeyPatch) -> None:
    lead = HostedPartition.lead

    def lead_without_producers(self: HostedPartition, leader: PartitionLeader) -> None:
        self.log.producers.clear()
        lead(self, leader)

    patch.setattr(HostedPartition, "lead", lead_without_producers)


def acknowledge_an_old_waiter_after_truncation(patch: pytest.MonkeyPatch) -> None:
    def try_complete(self: Any, now_ms: int) -> bool:
        self._waiting = [each for each in self._waiting if each.hosted.role.high_watermark < each.end_offset]
        if not self._waiting:
            self._finish(self._failed)
        return not self._waiting

    patch.setattr(DelayedProduce, "try_complete", try_complete)


def complete_a_reassignment_before_the_new_replicas_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    def complete(self: Any) -> None:
        if not self.adding and not self.removing:
            return
        kept = [
            pair for pair in zip(self.replicas, self.directories, strict=True) if pair[0] not in self.removing
        ]
        self.replicas, self.directories = (tuple(each) for each in zip(*kept, strict=True))
        self.isr, self.elr, self.adding, self.removing = self.replicas, (), (), ()

    patch.setattr(partition_change._Replicas, "complete_reassignment", complete)


def lose_the_last_segment_of_a_moved_replica(patch: pytest.MonkeyPatch) -> None:
    finish_move = LogDirs.finish_move

    def finish_without_it(
        self: LogDirs, last: LastCopy, checkpoints: Any, unique_id: Any, now_ms: int
    ) -> Log | None:
        log = finish_move(self, last, checkpoints, unique_id, now_ms)
        if log is not None and len(last.segments) > 1:  # the newest is empty
            log.truncate_to(last.segments[-2].base_offset, now_ms)
        return log

    patch.setattr(LogDirs, "finish_move", finish_without_it)


def create_replicas_in_cordoned_directories(patch: pytest.MonkeyPatch) -> None:
    by_preference = directory_choice.by_preference
    patch.setattr(log_dirs, "by_preference", lambda dirs, cordoned: by_preference(dirs, frozenset()))


def skip_the_check_of_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionRole, "check_epoch", lambda self, epoch: None)


def poll_again_what_was_read(patch: pytest.MonkeyPatch) -> None:
    fetch = HostedPartition.fetch

    def fetch_before(
        self: HostedPartition, offset: int, *args: Any, is_follower: bool, **options: Any
    ) -> Any:
        before = offset if is_follower else max(offset - 1, self.log.log_start_offset)
        return fetch(self, before, *args, is_follower=is_follower, **options)

    patch.setattr(HostedPartition, "fetch", fetch_before)


# By the bug: what the checker that finds it says. Most are found by several, and the first one ends the run.
_COMMITTED_RECORDS_CHANGE = (
    "leader completeness|committed prefix|offset_out_of_range|held .* and now holds|was acknowledged at offset|"
    "is acknowledged at offset|holds number"
)
PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (acknowledge_before_replication, _COMMITTED_RECORDS_CHANGE),
    (count_a_lagging_follower, _COMMITTED_RECORDS_CHANGE),
    (count_a_diverging_follower, f"{_COMMITTED_RECORDS_CHANGE}|cannot be copied"),
    (elect_outside_the_isr, f"{_COMMITTED_RECORDS_CHANGE}|metadata"),
    (lose_producer_state_at_failover, "last stable offset|holds number|occur|got out_of_order"),
    (skip_the_check_of_the_leader_epoch, f"{_COMMITTED_RECORDS_CHANGE}|leader epoch"),
    (complete_a_reassignment_before_the_new_replicas_are_in_sync, _COMMITTED_RECORDS_CHANGE),
    (lose_the_last_segment_of_a_moved_replica, f"{_COMMITTED_RECORDS_CHANGE}|high watermark"),
    (poll_again_what_was_read, "non-monotonic poll"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "finding"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], finding: str) -> None:
    violations = find_violations(plant, finding)
    assert violations
    assert re.search(finding, violations[-1]), violations


@pytest.mark.parametrize("play", [elect_twice, restart_without_the_high_watermark])
def test_truncation_to_the_high_watermark_is_found_in_the_next_election(
    monkeypatch: pytest.MonkeyPatch, play: Callable[[Scenario], Awaitable[None]]
) -> None:
    truncate_to_the_high_watermark(monkeypatch)
    with pytest.raises(Violation, match=r"leader completeness|committed prefix"):
        run_scenario(play, 0, controllers=3)


def test_a_replica_that_cannot_go_on_after_a_power_loss_is_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without truncation its log ends in the middle of a batch of the leader, which it can never append."""
    count_a_diverging_follower(monkeypatch)
    with pytest.raises(Violation, match="divergence: the replicas have different logs"):
        run_scenario(diverge_in_a_power_loss, controllers=3)
    assert "the leader sent a batch with offset 7, but the log ends at 10" in caplog.text


def test_an_acknowledgement_after_truncation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_an_old_waiter_after_truncation(monkeypatch)
    with pytest.raises(AssertionError, match="truncated"):
        run_scenario(truncate_a_waiting_produce, controllers=3)


def test_a_stale_broker_epoch_in_alter_partition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    is_eligible = alter_partition._is_eligible
    monkeypatch.setattr(
        alter_partition, "_is_eligible", lambda edit, broker_id, epoch: is_eligible(edit, broker_id, -1)
    )
    with pytest.raises(Violation, match="leader completeness"):
        run_scenario(deliver_a_late_expansion, controllers=3)


def test_a_replica_that_is_set_aside_without_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataImage, "topic_id_on", lambda self, broker_id, partition: None)
    with pytest.raises(Violation, match=r"stray folder: .* is a replica of journal"):
        run_scenario(restart_a_follower, controllers=3)


def test_a_replica_in_a_cordoned_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run of the workload a cordon and a new replica seldom meet."""
    run_scenario(create_a_topic_beside_a_cordon, controllers=3, config=_TWO_DIRECTORIES)
    create_replicas_in_cordoned_directories(monkeypatch)
    with pytest.raises(Violation, match=r"cordon: node-1 has created short-\d in /data/two"):
        run_scenario(create_a_topic_beside_a_cordon, controllers=3, config=_TWO_DIRECTORIES)


async def create_a_topic_beside_a_cordon(scenario: Scenario) -> None:
    await scenario.send(b"before")
    (controller,) = scenario.cluster.active_controllers()
    broker = scenario.cluster.nodes[1].broker
    assert controller.quorum is not None
    assert broker is not None
    change = ConfigChange("cordoned.log.dirs", ConfigOp.SET, "/data/two")
    await controller.quorum.submit(
        IncrementalAlterConfigs(((ConfigResource(ResourceType.BROKER, "1"), (change,)),))
    )
    await scenario.wait_for(lambda: broker.services.log_dirs.cordoned == {"/data/two"})
    scenario.audit.check()
    await create_topic_with_retries(scenario.client, "short", 4, {}, 3)
    created = {TopicPartition("short", index) for index in range(4)}
    await scenario.wait_for(lambda: created <= set(broker.services.log_dirs.partitions))
    scenario.audit.check()


def test_a_coordinator_that_has_not_loaded_its_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_loader, "replay_batch", lambda *_: 0)
    with pytest.raises(Violation, match=r"coordinator: .*__consumer_offsets.* but its log gives"):
        run_scenario(move_a_coordinator, controllers=3)


def test_a_coordinator_in_an_invalid_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def validate(self: GroupShard) -> None:
        assert not self.durable_state()["offsets"], "planted"

    monkeypatch.setattr(GroupShard, "validate", validate)
    with pytest.raises(Violation, match=r"coordinator: .*__consumer_offsets.*: planted"):
        run_scenario(move_a_coordinator, controllers=3)


async def move_a_coordinator(scenario: Scenario) -> None:
    cluster = scenario.cluster
    await Committer(scenario.client, scenario.world.derive(), "group", scenario.topic).commit_next()
    used = {
        node.node_id
        for node, hosted in cluster.replicas()
        if hosted.topic_partition.topic == "__consumer_offsets"
        and hosted.is_led
        and hosted.log.log_end_offset
    }
    (node_id,) = used
    await cluster.nodes[node_id].kill()
    reader = GroupClient(scenario.client, "group", scenario.topic)
    async with asyncio.timeout(60):
        while (await reader.committed([0]))[0] != ErrorCode.none:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    scenario.audit.check()


async def restart_a_follower(scenario: Scenario) -> None:
    await scenario.send(b"kept")
    node = scenario.cluster.nodes[scenario.followers[0]]
    await node.kill()
    node.start()
    await scenario.wait_for(lambda: node.broker is not None and len(scenario.isr) == 3)


def find_violations(plant: Callable[[pytest.MonkeyPatch], None], pattern: str) -> list[str]:
    """The violations of a few seeds, up to the first that matches. A bug may also stop the clients of a seed."""
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(_SEEDS):
            try:
                simulate(run_cluster_workload, seed, profile=PROFILE)
            except Violation as violation:
                found.append(f"seed {seed}: {violation}")
                if re.search(pattern, found[-1]):
                    break
    return found
