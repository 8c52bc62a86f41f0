"""Descriptions of broker configs of listeners, connections and requests."""

TEXT = """
advertised.listeners
    The addresses that clients use to connect. If it is not set, each client gets the address that it connected to.
background.threads
    In Kafka, the number of threads for background work.
connections.max.idle.ms
    How long a connection may be idle before it is closed; negative means forever.
delete.records.purgatory.purge.interval.requests
    The number of completed requests after which the purgatory of DeleteRecords is purged.
fetch.max.bytes
    The maximum size of a Fetch response. The first batch is returned even if it is larger.
fetch.purgatory.purge.interval.requests
    The number of completed requests after which the purgatory of Fetch is purged.
inter.broker.listener.name
    The listener for connections between brokers. If it is not set, security.inter.broker.protocol determines it.
listener.security.protocol.map
    The security protocol of each listener name, as NAME:PROTOCOL pairs.
listeners
    The addresses to listen on, as NAME://host:port. An empty host means all interfaces, port 0 a free port.
max.connection.creation.rate
    How many connections per second the broker accepts; more wait. It can also be set per listener.
max.connections
    The maximum number of connections; more wait. It can also be set per listener.
max.connections.per.ip
    The maximum number of connections per address. With 0 only addresses in max.connections.per.ip.overrides may
    connect.
max.connections.per.ip.overrides
    The limits of single addresses or hosts, as host:count pairs.
max.incremental.fetch.session.cache.slots
    The maximum number of incremental fetch sessions (KIP-227).
max.request.partition.size.limit
    The maximum number of partitions in a DescribeTopicPartitions response; the client requests the rest with a
    cursor.
num.io.threads
    In Kafka, the number of threads that process requests.
num.network.threads
    In Kafka, the number of network threads.
producer.purgatory.purge.interval.requests
    The number of completed requests after which the purgatory of Produce is purged.
queued.max.request.bytes
    The memory for the requests of all connections together. Above it the broker stops reading from connections until
    it has sent responses, but it always reads at least one request to its end. Kafka has no limit by default; in
    Ottla 0 or less means 512 MiB, or twice socket.request.max.bytes if that is larger.
queued.max.requests
    How many requests may be queued before the broker stops reading.
request.timeout.ms
    How long a request of this node to another node waits for the response.
socket.connection.setup.timeout.max.ms
    The maximum of socket.connection.setup.timeout.ms after repeated failures.
socket.connection.setup.timeout.ms
    The timeout for establishing a connection; doubled after each failure.
socket.listen.backlog.size
    How many connections may wait to be accepted. If it is not set, Ottla uses 1024.
socket.receive.buffer.bytes
    The size of a connection's receive buffer in the kernel; -1 means the system's default. If it is not set, the
    system adapts the buffer to each connection, which is faster than a fixed size.
socket.request.max.bytes
    The maximum size of a request. The broker closes the connection of a larger one.
socket.send.buffer.bytes
    The size of a connection's send buffer in the kernel; -1 means the system's default. If it is not set, the system
    adapts the buffer to each connection, which is faster than a fixed size.
"""
