"""The versions that ApiVersions offers, compared with those of Apache Kafka in its default configuration."""

import contextlib
from pathlib import Path

import pytest
from tests.interop.brokers import RunningBroker, run_kafka, run_ottla
from tests.interop.kio_client import KioClient
from tests.interop.wire import API_VERSIONS

pytestmark = pytest.mark.java

# APIs that Kafka offers to clients and Ottla does not support yet.
NOT_SERVED = {
    17: "SaslHandshake",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    36: "SaslAuthenticate",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}


def offered_by(broker: RunningBroker) -> dict[int, tuple[int, int]]:
    with contextlib.closing(KioClient(broker.bootstrap)) as client:
        answer = client.ask(API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def test_every_api_is_offered_in_the_versions_that_kafka_offers(tmp_path: Path) -> None:
    with run_ottla(tmp_path / "ottla") as ottla_broker, run_kafka(tmp_path / "kafka") as kafka_broker:
        ottla, kafka = offered_by(ottla_broker), offered_by(kafka_broker)
    assert ottla == {key: versions for key, versions in kafka.items() if key not in NOT_SERVED}
    assert NOT_SERVED.keys() <= kafka.keys()
