"""KIP-714: which clients a subscription matches, and which of their requests are accepted."""

from uuid import UUID

import pytest

from ottla.core import client_telemetry
from ottla.core.client_telemetry import LABEL_CHARS_MAX, ClientInstance, ClientLabels, ClientTelemetry
from ottla.model.errors import ErrorCode, KafkaError

INSTANCE = UUID(int=1)
INTERVAL_MS = 10_000
LABELS = ClientLabels(str(INSTANCE), "app", "librdkafka", "2.16.0", "127.0.0.1", "40000")


def metrics_for(match: str, client_id: str) -> tuple[str, ...]:
    telemetry = ClientTelemetry(1 << 20)
    telemetry.configure({"one": {"match": match, "metrics": "org.apache.kafka.producer."}})
    labels = ClientLabels(str(INSTANCE), client_id, "librdkafka", "2.16.0", "127.0.0.1", "40000")
    return telemetry.subscribe(INSTANCE, labels, 0).metrics


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


class Client:
    """One client instance. The methods return the code of the response."""

    def __init__(self) -> None:
        self.telemetry = ClientTelemetry(1 << 20)
        self.configure("a.")
        self.subscription_id = -1
        self.now_ms = 0

    def configure(self, metrics: str, *, of: str = "all") -> None:
        config = {"metrics": "a.", "interval.ms": str(INTERVAL_MS)}
        self.telemetry.configure({"all": config, of: config | {"metrics": metrics}})

    def subscribe(self, labels: ClientLabels = LABELS) -> ErrorCode:
        try:
            subscription = self.telemetry.subscribe(INSTANCE, labels, self.now_ms)
        except KafkaError as error:
            return error.code
        self.subscription_id = subscription.subscription_id
        return ErrorCode.none

    def push(
        self, subscription_id: int | None = None, codec: int = 0, *, terminating: bool = False
    ) -> ErrorCode:
        wanted = self.subscription_id if subscription_id is None else subscription_id
        try:
            self.instance = self.push_to(INSTANCE, wanted, codec, terminating)
        except KafkaError as error:
            return error.code
        return ErrorCode.none

    def push_to(
        self, instance: UUID | None, subscription_id: int, codec: int, terminating: bool
    ) -> ClientInstance:
        return self.telemetry.push(
            instance, LABELS, subscription_id, codec, 100, terminating=terminating, now_ms=self.now_ms
        )


def test_a_client_may_send_one_request_in_an_interval_and_push_early_after_its_subscription() -> None:
    client = Client()
    assert client.subscribe() is ErrorCode.none
    assert client.push() is ErrorCode.none
    client.now_ms = INTERVAL_MS - 1
    assert client.push() is ErrorCode.throttling_quota_exceeded
    client.now_ms = INTERVAL_MS
    assert client.push() is ErrorCode.none
    client.now_ms = 2 * INTERVAL_MS
    assert client.subscribe() is ErrorCode.none
    assert client.push() is ErrorCode.none


def test_a_client_that_subscribes_again_cannot_push_more_often() -> None:
    client = Client()
    assert (client.subscribe(), client.push()) == (ErrorCode.none, ErrorCode.none)
    for client.now_ms in range(1, INTERVAL_MS, 1000):
        assert client.subscribe() is ErrorCode.throttling_quota_exceeded
        assert client.subscribe(LABELS._replace(client_source_port="40001")) is not ErrorCode.none
        assert client.push() is ErrorCode.throttling_quota_exceeded


def test_a_client_that_subscribes_again_stays_terminated() -> None:
    client = Client()
    client.subscribe()
    assert client.push(terminating=True) is ErrorCode.none
    client.now_ms = INTERVAL_MS
    assert client.subscribe() is ErrorCode.none
    assert client.push() is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("codec", "wrong_id", "code"),
    [(0, 1, ErrorCode.unknown_subscription_id), (9, 0, ErrorCode.unsupported_compression_type)],
)
def test_a_client_asks_again_at_once_after_a_rejected_push(
    codec: int, wrong_id: int, code: ErrorCode
) -> None:
    client = Client()
    assert (client.subscribe(), client.push()) == (ErrorCode.none, ErrorCode.none)
    assert client.push(client.subscription_id + wrong_id, codec) is ErrorCode.throttling_quota_exceeded
    client.now_ms = INTERVAL_MS
    assert client.push(client.subscription_id + wrong_id, codec) is code
    assert (client.subscribe(), client.push()) == (ErrorCode.none, ErrorCode.none)
    assert client.subscribe() is ErrorCode.throttling_quota_exceeded
    assert client.push(client.subscription_id + wrong_id, codec) is ErrorCode.throttling_quota_exceeded


def test_a_changed_subscription_is_asked_for_and_used_at_once() -> None:
    client = Client()
    assert (client.subscribe(), client.push()) == (ErrorCode.none, ErrorCode.none)
    client.configure("b.")
    assert client.push() is ErrorCode.unknown_subscription_id
    assert (client.subscribe(), client.push()) == (ErrorCode.none, ErrorCode.none)
    client.configure("b.")  # the same: nothing has changed for this client
    assert client.push() is ErrorCode.throttling_quota_exceeded


def test_labels_are_cut() -> None:
    client = Client()
    assert client.subscribe(ClientLabels._make(["x" * 32_767] * len(LABELS))) is ErrorCode.none
    assert client.push() is ErrorCode.none
    assert client.instance.labels == ClientLabels._make(["x" * LABEL_CHARS_MAX] * len(LABELS))


def test_the_instance_that_was_used_least_recently_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "_INSTANCES_MAX", 2)
    client = Client()
    client.subscribe()
    client.telemetry.subscribe(UUID(int=2), LABELS, 0)
    known = client.push_to(UUID(int=2), client.subscription_id, 0, False)
    client.push()
    client.telemetry.subscribe(UUID(int=3), LABELS, 0)
    assert client.push(terminating=True) is ErrorCode.none
    assert client.push_to(UUID(int=2), client.subscription_id, 0, False) is not known


def test_a_client_may_push_to_another_broker_than_it_asked_for_its_subscription() -> None:
    client, other = Client(), Client()
    client.subscribe()
    other.subscription_id = client.subscription_id
    assert other.push() is ErrorCode.none
    assert other.push() is ErrorCode.throttling_quota_exceeded
    other.configure("b.")
    assert other.push() is ErrorCode.unknown_subscription_id


def test_a_push_without_an_instance_is_rejected() -> None:
    client = Client()
    client.subscribe()
    with pytest.raises(KafkaError, match="must name its client instance"):
        client.push_to(None, client.subscription_id, 0, False)
