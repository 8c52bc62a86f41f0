"""The requests and responses of HTTP, without sockets."""

from http import HTTPStatus
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics import HttpRequest, HttpRequestError, RequestReader, respond
from ottla.metrics.http import REQUEST_BYTES_MAX

SCRAPE = b"GET /metrics?name=a HTTP/1.1\r\nHost: a:1\r\nACCEPT: text/plain\r\naccept: */*\r\n\r\n"


def test_a_request_is_read() -> None:
    assert RequestReader().receive(SCRAPE) == HttpRequest(
        "GET", "/metrics", {"host": "a:1", "accept": "text/plain, */*"}
    )


@given(cuts=st.lists(st.integers(0, len(SCRAPE))))
def test_a_request_may_come_in_pieces(cuts: list[int]) -> None:
    reader, edges = RequestReader(), sorted({0, len(SCRAPE), *cuts})
    results = [reader.receive(SCRAPE[start:end]) for start, end in pairwise(edges)]
    assert results[:-1] == [None] * (len(results) - 1)
    assert results[-1] is not None


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics HTTP/2.0\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics HTTP/1.1\r\nName : value\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics HTTP/1.1\r\n: value\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"POST /metrics HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"G" * (REQUEST_BYTES_MAX + 1), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        (b"G" * (REQUEST_BYTES_MAX + 1) + b"\r\n\r\n", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    ],
)
def test_a_bad_request_has_a_status(request_bytes: bytes, status: HTTPStatus) -> None:
    with pytest.raises(HttpRequestError) as raised:
        RequestReader().receive(request_bytes)
    assert raised.value.status is status


@given(data=st.lists(st.binary()))
def test_any_bytes_are_a_request_or_an_error(data: list[bytes]) -> None:
    reader = RequestReader()
    try:
        for piece in data:
            reader.receive(piece)
    except HttpRequestError:
        pass


def test_a_response_to_head_has_the_length_but_no_body() -> None:
    (head,) = respond(HTTPStatus.OK, "text/plain", [b"abc", b"de"], with_body=False)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 5\r\n" in head
    assert head.endswith(b"\r\n\r\n")
