"""KIP-714: which clients a subscription matches."""

from uuid import UUID

import pytest

from ottla.core.client_telemetry import ClientLabels, ClientTelemetry

INSTANCE = UUID(int=1)


def metrics_for(match: str, client_id: str) -> tuple[str, ...]:
    telemetry = ClientTelemetry(1 << 20)
    telemetry.configure({"one": {"match": match, "metrics": "org.apache.kafka.producer."}})
    labels = ClientLabels(str(INSTANCE), client_id, "librdkafka", "2.16.0", "127.0.0.1", "40000")
    return telemetry.subscribe(INSTANCE, labels).metrics


@pytest.mark.parametrize(
    ("match", "is_subscribed"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=app-.*, client_software_name=librdkafka", True),
        ("client_id=app-.*,client_software_name=Java", False),
        ("client_id=(?=app).*", False),  # stored by a broker with another syntax: RE2 has no look-ahead
    ],
)
def test_a_subscription_is_for_clients_whose_labels_match_every_rule(match: str, is_subscribed: bool) -> None:
    assert bool(metrics_for(match, "app-7")) is is_subscribed


@pytest.mark.timeout(20)
def test_no_pattern_takes_more_than_linear_time() -> None:
    assert metrics_for("client_id=(a+)+b", "a" * 20_000) == ()
