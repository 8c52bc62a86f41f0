"""Builds the server from the broker's configs: limits, socket options, and the memory for requests."""

from collections.abc import Callable

from ottla.broker.connection import ClientConnection, Dispatch
from ottla.broker.request_memory import RequestMemory
from ottla.broker.server import ListenerLimits, Server, ServerLimits
from ottla.env import Env
from ottla.env.network import DEFAULT_OPTIONS, SocketOptions
from ottla.model.config import BrokerConfig

# Kafka's default sets no limit. Here one process serves all clients, and too many requests must not exhaust its memory.
_REQUEST_MEMORY_BYTES = 512 << 20


def new_server(
    env: Env,
    dispatch: Dispatch,
    config: BrokerConfig,
    new_connection: Callable[..., ClientConnection] = ClientConnection,
) -> Server:
    request_bytes_max = config.get_int("socket.request.max.bytes")
    memory_bytes = config.get_int("queued.max.request.bytes")
    if memory_bytes <= 0:
        memory_bytes = max(_REQUEST_MEMORY_BYTES, 2 * request_bytes_max)
    return Server(
        env,
        dispatch,
        server_limits(config),
        options=socket_options(config),
        memory=RequestMemory(memory_bytes),
        new_connection=new_connection,
    )


def server_limits(config: BrokerConfig) -> ServerLimits:
    overrides = (
        item.rpartition(":") for item in config.get_str("max.connections.per.ip.overrides").split(",")
    )
    return ServerLimits(
        socket_request_max_bytes=config.get_int("socket.request.max.bytes"),
        connections_max_idle_ms=config.get_int("connections.max.idle.ms"),
        max_connections=config.get_int("max.connections"),
        max_connections_per_ip=config.get_int("max.connections.per.ip"),
        max_connections_per_ip_overrides={host.strip(): int(limit) for host, _, limit in overrides if host},
        max_connection_creation_rate=config.get_int("max.connection.creation.rate"),
        # As in Kafka's quotas, the last sample is incomplete and does not count.
        rate_window_s=max(config.get_int("quota.window.num") - 1, 1)
        * config.get_int("quota.window.size.seconds"),
        by_listener={
            listener.name: ListenerLimits(
                config.get_int(f"listener.name.{listener.name.lower()}.max.connections"),
                config.get_int(f"listener.name.{listener.name.lower()}.max.connection.creation.rate"),
            )
            for listener in config.broker_listeners
        },
    )


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Leaves buffers that are not set to the kernel, which tunes them per connection: faster than Kafka's 100 KiB."""

    def given(name: str) -> int | None:
        value = config.get_int(name)
        return value if config.is_set(name) and value > 0 else None

    return SocketOptions(
        send_buffer_bytes=given("socket.send.buffer.bytes"),
        receive_buffer_bytes=given("socket.receive.buffer.bytes"),
        backlog=given("socket.listen.backlog.size") or DEFAULT_OPTIONS.backlog,
    )
