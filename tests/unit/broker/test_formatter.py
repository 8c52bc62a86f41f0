"""The formatter of directories: what it writes, and what it refuses before it writes anything."""

from pathlib import Path
from random import Random

import pytest

from ottla.broker.formatter import (
    directories_of,
    feature_levels,
    format_directories,
    needs_cluster_id,
    new_cluster_id,
)
from ottla.broker.quorum.bootstrap import DEFAULT_FEATURES, bootstrap_records
from ottla.env import Env
from ottla.env.clock import SystemClock
from ottla.env.processes import ChildProcesses
from ottla.env.real_disk import RealDisk
from ottla.env.real_network import RealNetwork
from ottla.env.threads import RealThreads
from ottla.model.config import BrokerConfig
from ottla.model.ids import uuid_from_string
from ottla.protocol.metadata_records.records import FeatureLevelRecord
from ottla.storage.meta_properties import UnusableDirectoryError, read_meta_properties

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


class DashFirst(Random):
    """Random bits that give a UUID whose text begins with a dash, then other bits."""

    def __init__(self) -> None:
        super().__init__(1)
        self.pending = [int.from_bytes(b"\xf8" + bytes(15))]

    def getrandbits(self, k: int) -> int:
        return self.pending.pop() if self.pending else super().getrandbits(k)


def env_with(random: Random) -> Env:
    return Env(SystemClock(), RealDisk(), RealNetwork(), RealThreads(1), random, ChildProcesses())


@pytest.fixture
def env() -> Env:
    return env_with(Random(7))


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    return BrokerConfig(
        {
            "node.id": "2",
            "log.dirs": f"{tmp_path}/b,{tmp_path}/a/",
            "metadata.log.dir": f"{tmp_path}/m",
        }
    )


def written(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())


def test_every_directory_gets_an_identity_and_the_feature_levels(
    env: Env, config: BrokerConfig, tmp_path: Path
) -> None:
    results = format_directories(env, config, cluster_id=CLUSTER)
    assert [result.path for result in results] == [f"{tmp_path}/{name}" for name in "abm"]
    assert [result.is_metadata_directory for result in results] == [False, False, True]
    assert len({result.meta.directory_id for result in results}) == 3
    for result in results:
        meta = read_meta_properties(env.disk, result.path)
        assert meta == result.meta
        assert (meta.cluster_id, meta.node_id) == (CLUSTER, 2)
        _, *records, _ = bootstrap_records(env.disk, result.path, 0)
        levels = {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}
        assert levels == DEFAULT_FEATURES
    names = ("bootstrap.checkpoint", "meta.properties")
    assert written(tmp_path) == [f"{folder}/{name}" for folder in "abm" for name in names]


def test_a_formatted_directory_is_refused_and_nothing_is_written(
    env: Env, config: BrokerConfig, tmp_path: Path
) -> None:
    format_directories(env, BrokerConfig({"node.id": "2", "log.dirs": f"{tmp_path}/a"}), cluster_id=CLUSTER)
    before = written(tmp_path)
    with pytest.raises(UnusableDirectoryError, match=r"/a is formatted already. Use --ignore-formatted"):
        format_directories(env, config, cluster_id=CLUSTER)
    assert written(tmp_path) == before


def test_formatted_directories_are_skipped_on_request_and_give_the_others_their_cluster(
    env: Env, config: BrokerConfig, tmp_path: Path
) -> None:
    (first,) = format_directories(env, BrokerConfig({"node.id": "2", "log.dirs": f"{tmp_path}/a"}))
    results = format_directories(env, config, ignore_formatted=True)
    assert [result.is_new for result in results] == [False, True, True]
    assert {result.meta.cluster_id for result in results} == {first.meta.cluster_id}
    assert results[0].meta == first.meta


@pytest.mark.parametrize(
    ("properties", "cluster_id", "error"),
    [
        ({}, "another", r"belongs to cluster 4L6g3nShT-eMCtK--X86sw, but --cluster-id says another"),
        ({"node.id": "3"}, CLUSTER, r"belongs to node 2, and this is node 3"),
    ],
)
def test_a_directory_of_another_cluster_or_node_is_refused(
    env: Env, config: BrokerConfig, tmp_path: Path, properties: dict[str, str], cluster_id: str, error: str
) -> None:
    format_directories(env, BrokerConfig({"node.id": "2", "log.dirs": f"{tmp_path}/m"}), cluster_id=CLUSTER)
    before = written(tmp_path)
    with pytest.raises(UnusableDirectoryError, match=error):
        format_directories(
            env,
            BrokerConfig({**config.static, "broker.id": "-1", **properties}),
            cluster_id=cluster_id,
            ignore_formatted=True,
        )
    assert written(tmp_path) == before


def test_data_without_an_identity_needs_a_cluster_id(env: Env, tmp_path: Path) -> None:
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    config = BrokerConfig({"log.dirs": f"{tmp_path}/data"})
    with pytest.raises(UnusableDirectoryError, match=r"has data, but no meta.properties"):
        format_directories(env, config)
    (result,) = format_directories(env, config, cluster_id=CLUSTER)
    assert result.meta.cluster_id == CLUSTER


def test_without_a_cluster_id_a_new_one_is_chosen_that_does_not_look_like_an_option(tmp_path: Path) -> None:
    cluster_id = new_cluster_id(env_with(DashFirst()))
    assert not cluster_id.startswith("-")
    assert uuid_from_string(cluster_id).version == 4


def test_default_levels_suit_the_metadata_version() -> None:
    assert feature_levels({}) == DEFAULT_FEATURES
    assert feature_levels({"metadata.version": 21}) == {"metadata.version": 21}
    assert feature_levels({"metadata.version": 23}) == {"metadata.version": 23, "group.version": 1}
    assert feature_levels({"transaction.version": 1})["transaction.version"] == 1


def test_a_level_of_zero_is_not_written(env: Env, tmp_path: Path) -> None:
    config = BrokerConfig({"log.dirs": f"{tmp_path}/data"})
    format_directories(env, config, features=feature_levels({"group.version": 0}))
    _, *records, _ = bootstrap_records(env.disk, f"{tmp_path}/data", 0)
    names = [record.name for record in records if isinstance(record, FeatureLevelRecord)]
    assert names == ["metadata.version", "eligible.leader.replicas.version", "transaction.version"]


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        ({"no.version": 1}, "no.version is not a feature that this release supports. Set one of "),
        ({"metadata.version": 3}, "Set a level from 17 to "),
        ({"transaction.version": 3}, "Set a level from 0 to 2"),
    ],
)
def test_unsupported_features_and_levels_are_refused(chosen: dict[str, int], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        feature_levels(chosen)


def test_a_node_of_several_needs_a_cluster_id() -> None:
    assert not needs_cluster_id(BrokerConfig({}))
    assert not needs_cluster_id(BrokerConfig({"controller.quorum.voters": "1@localhost:9093"}))
    several = {
        "controller.quorum.voters": "1@a:9093,2@b:9093",
        "listeners": "CONTROLLER://:9093,PLAINTEXT://:9092",
    }
    assert needs_cluster_id(BrokerConfig(several))
    broker = {"process.roles": "broker", "node.id": "4", "controller.quorum.voters": "1@a:9093"}
    assert needs_cluster_id(BrokerConfig(broker))


def test_each_directory_is_formatted_once() -> None:
    config = BrokerConfig({"log.dirs": "b/,a", "metadata.log.dir": "b"})
    assert directories_of(config) == ["a", "b"]
