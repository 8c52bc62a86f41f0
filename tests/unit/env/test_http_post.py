"""A POST ends at its deadline, whatever the server does."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from ottla.env.http_post import HttpPostError, post

TIMEOUT_S = 0.5
# How long a post may take with this timeout on a busy machine. Without a deadline it would take for ever.
DONE_S = 20.0


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that calls `serve` with each connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(DONE_S)
    connections: list[socket.socket] = []

    def run() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                with connection, suppress(OSError):
                    connection.settimeout(DONE_S)
                    serve(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/metrics?a=b"
    finally:
        for used in (listener, *connections):
            with suppress(OSError):  # it is closed
                used.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(DONE_S)
        assert not thread.is_alive()


def read_request(connection: socket.socket) -> bytes:
    data = bytearray()
    while b"\r\n\r\n" not in data:
        data += received_by(connection)
    size = int(data.lower().partition(b"content-length: ")[2].split()[0])
    end = data.index(b"\r\n\r\n") + 4 + size
    while len(data) < end:
        data += received_by(connection)
    return bytes(data)


def received_by(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the client has closed the connection")
    return data


def answer(response: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(response)

    return serve


def stay_silent(connection: socket.socket) -> None:
    read_request(connection)
    connection.recv(1)


def read_nothing(connection: socket.socket) -> None:
    time.sleep(2 * TIMEOUT_S)


def drip(connection: socket.socket) -> None:
    """Each byte comes long before the timeout of a read."""
    read_request(connection)
    for byte in b"HTTP/1.1 200 " + b"OK" * 10_000:
        connection.sendall(bytes([byte]))
        time.sleep(TIMEOUT_S / 10)


def send_without_end(connection: socket.socket) -> None:
    read_request(connection)
    while True:
        connection.sendall(bytes(65536))


def post_to(url: str, body: bytes = b"metrics", timeout_s: float = DONE_S) -> None:
    post(url, body, {"Content-Type": "application/x-protobuf"}, timeout_s)


def test_the_server_gets_the_body() -> None:
    received = []

    def serve(connection: socket.socket) -> None:
        received.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    body = bytes(3 << 20)
    with server(serve) as url:
        post_to(url, body)
    (request,) = received
    lines = request.removesuffix(body).decode().splitlines()
    assert lines[0] == "POST /v1/metrics?a=b HTTP/1.1"
    assert sorted(line for line in lines[1:] if line) == [
        "Connection: close",
        f"Content-Length: {len(body)}",
        "Content-Type: application/x-protobuf",
        f"Host: {url.split('/')[2]}",
    ]


@pytest.mark.parametrize("serve", [stay_silent, drip], ids=["silent", "slow drip"])
def test_a_server_that_does_not_answer_in_time_ends_the_post_at_the_deadline(
    serve: Callable[[socket.socket], None],
) -> None:
    began_s = time.monotonic()
    with server(serve) as url, pytest.raises(TimeoutError):
        post_to(url, timeout_s=TIMEOUT_S)
    assert TIMEOUT_S <= time.monotonic() - began_s < DONE_S


def test_a_server_that_does_not_read_ends_the_post_at_the_deadline() -> None:
    with server(read_nothing) as url, pytest.raises(TimeoutError):
        post_to(url, bytes(64 << 20), timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    "serve",
    [
        answer(b"no HTTP at all\r\n"),
        answer(b"\xff" * 100_000),
        answer(b"HTTP/1.1"),
        answer(b"HTTP/2 200 OK\r\n"),
        answer(b""),
        send_without_end,
    ],
    ids=["text", "no line", "incomplete", "version", "nothing", "without end"],
)
def test_garbage_is_an_error_and_only_the_status_line_is_read(serve: Callable[[socket.socket], None]) -> None:
    with server(serve) as url, pytest.raises(HttpPostError, match=r"did not answer in HTTP/1\.1"):
        post_to(url)


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "404 Not Found", "503 Service Unavailable"])
def test_a_server_that_rejects_the_request_is_an_error(status: str) -> None:
    response = f"HTTP/1.1 {status}\r\n\r\n".encode()
    with server(answer(response)) as url, pytest.raises(HttpPostError, match=status):
        post_to(url)


def test_the_body_of_the_response_is_not_waited_for() -> None:
    def serve(connection: socket.socket) -> None:
        answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")(connection)
        connection.recv(1)

    with server(serve) as url:
        post_to(url)


def test_no_server_and_no_tls_are_errors() -> None:
    with server(answer(b"HTTP/1.1 200 OK\r\n\r\n")) as url, pytest.raises(OSError):
        post_to(url.replace("http:", "https:"), timeout_s=TIMEOUT_S)
    with pytest.raises(OSError):
        post_to(url)


def test_a_server_with_tls_must_have_a_certificate_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = new_certificate(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            answer(b"HTTP/1.1 200 OK\r\n\r\n")(encrypted)

    with server(serve) as url:
        url = url.replace("http:", "https:")
        with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
            post_to(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        post_to(url, bytes(1 << 20))
        with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
            post_to(url.replace("127.0.0.1", "localhost"))


def new_certificate(folder: Path, address: str) -> Path:
    """A key and a certificate that it has signed, in one file."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize(
    "url", ["ftp://host/", "http:///path", "http://host:port/", "http://127.0.0.1:1/\u00e9"]
)
def test_an_invalid_url_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError):
        post_to(url)
