"""Texts for broker configs of listeners, connections and requests."""

TEXT = """
advertised.listeners
    The addresses that clients are told to connect to. Where it is not set, Ottla tells each client the address that
    the client connected to.
background.threads
    How many threads do background work in Kafka.
connections.max.idle.ms
    How long a connection may be idle before it is closed; negative: as long as it likes.
delete.records.purgatory.purge.interval.requests
    After how many completed requests the purgatory of DeleteRecords is swept.
fetch.max.bytes
    The most that one Fetch response holds. The first batch is returned even when it alone is larger.
fetch.purgatory.purge.interval.requests
    After how many completed requests the purgatory of Fetch is swept.
inter.broker.listener.name
    Which listener brokers use among themselves. Where it is not set, security.inter.broker.protocol names it.
listener.security.protocol.map
    Which security protocol each listener name stands for, as NAME:PROTOCOL pairs.
listeners
    The addresses to listen on, as NAME://host:port. An empty host is all interfaces, port 0 a free port.
max.connection.creation.rate
    How many connections a second the broker accepts; more wait. Can be set per listener too.
max.connections
    How many connections the broker has at most; more wait. Can be set per listener too.
max.connections.per.ip
    How many connections are accepted from one address. 0 accepts none but those in max.connections.per.ip.overrides.
max.connections.per.ip.overrides
    Other limits for some addresses or hosts, as host:count pairs.
max.incremental.fetch.session.cache.slots
    How many incremental fetch sessions are kept (KIP-227).
max.request.partition.size.limit
    How many partitions one DescribeTopicPartitions response holds; the client asks for the rest by cursor.
num.io.threads
    How many threads serve requests in Kafka.
num.network.threads
    How many threads serve the network in Kafka.
producer.purgatory.purge.interval.requests
    After how many completed requests the purgatory of Produce is swept.
queued.max.request.bytes
    How many bytes the requests of all connections may hold in memory; when they do, connections are not read until
    requests have been answered. One request may always be read to its end. Kafka sets no limit by default; here 0 or
    less means 512 MiB, or twice socket.request.max.bytes if that is more.
queued.max.requests
    How many requests may wait before no more are read.
request.timeout.ms
    How long a request of this node to another waits for its response.
socket.connection.setup.timeout.max.ms
    The most that the timeout for making a connection grows to when attempts fail one after the other.
socket.connection.setup.timeout.ms
    How long making a connection may take at the first attempt; doubled at each failure.
socket.listen.backlog.size
    How many connections may wait to be accepted. Where it is not set, Ottla lets 1024 wait.
socket.receive.buffer.bytes
    The size of a connection's receive buffer in the kernel; -1 takes the system's default. Where it is not set, the
    system fits the buffer to each connection, which is faster than a fixed size.
socket.request.max.bytes
    The largest request that is read; a larger one closes its connection.
socket.send.buffer.bytes
    The size of a connection's send buffer in the kernel; -1 takes the system's default. Where it is not set, the
    system fits the buffer to each connection, which is faster than a fixed size.
"""
