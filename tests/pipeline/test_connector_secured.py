"""A cluster that wants TLS and a password: Apache Kafka with SASL_SSL, and only the options `kafka.*` to say so."""

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker, free_ports, run_kafka
from tests.pipeline.written_topics import create_topic, numbers

from ottla.pipeline.spark import exactly_once

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

pytestmark = pytest.mark.usefixtures("kafka_libs")


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Key and certificate for 127.0.0.1 in one file, and the certificate alone for those who are to trust it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = certificate.public_bytes(encoding)
    store, trusted = folder / "server.pem", folder / "trusted.pem"
    store.write_bytes(private + public)
    trusted.write_bytes(public)
    return store, trusted


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, dict[str, str]]]:
    """The broker, open to the tests' own clients at its first listener; and what Spark needs for the second."""
    folder = tmp_path_factory.mktemp("secured")
    store, trusted = write_certificate(folder)
    plain, controller, secure = free_ports(3)
    properties = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{secure}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{LOGIN} user_ada="lovelace";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{secure}",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{LOGIN} username="ada" password="lovelace";',
        "kafka.ssl.ca.location": str(trusted),
    }
    with run_kafka(folder / "data", set=properties, port=plain) as broker:
        yield broker, options


def test_a_stream_reads_and_writes_exactly_once_through_tls_with_a_password(
    spark: SparkSession, secured: tuple[RunningBroker, dict[str, str]], topic_name: str, tmp_path: Path
) -> None:
    broker, options = secured
    create_topic(broker.bootstrap, topic_name)
    rows = spark.range(1000).selectExpr("cast(id as string) as value")
    rows.write.format("ottla").options(**options, topic=topic_name).mode("append").save()
    copied = f"{topic_name}-copy"
    create_topic(broker.bootstrap, copied)
    read = spark.readStream.format("ottla").options(
        **options, subscribe=topic_name, startingOffsets="earliest"
    )
    copy = exactly_once(read.load().select("key", "value"), sink_id=copied).options(**options, topic=copied)
    query = copy.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(numbers(broker.bootstrap, copied)) == list(range(1000))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        (
            "kafka.sasl.jaas.config",
            f'{LOGIN} username="ada" password="byron";',
            "rejected the client: .*Authentication failed",
        ),
        ("kafka.ssl.ca.location", "", "rejected the client: .*certificate verify failed"),
    ],
    ids=["password", "certificate"],
)
def test_a_wrong_password_and_an_unknown_certificate_are_named(
    spark: SparkSession,
    secured: tuple[RunningBroker, dict[str, str]],
    topic_name: str,
    option: str,
    value: str,
    said: str,
) -> None:
    broker, options = secured
    create_topic(broker.bootstrap, topic_name)
    wrong = {name: text for name, text in {**options, option: value}.items() if text}
    with pytest.raises(Exception, match=said):
        spark.read.format("ottla").options(**wrong, subscribe=topic_name).load().count()
