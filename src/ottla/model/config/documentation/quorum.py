"""Descriptions of broker configs of identity, the quorum, the controller and the metadata log."""

TEXT = """
broker.heartbeat.interval.ms
    How often a broker sends a heartbeat to the active controller.
broker.id
    The older name of node.id.
broker.rack
    The rack of the broker. Replicas are spread over racks, and consumers may read from the nearest.
broker.session.timeout.ms
    How long the controller waits for a heartbeat before it fences the broker.
controller.listener.names
    The names of the controller's listeners. A node that is its own quorum needs none in `listeners`.
controller.performance.always.log.threshold.ms
    Controller events that take longer than this are always logged.
controller.performance.sample.period.ms
    How often the controller logs how long its events take.
controller.quorum.append.linger.ms
    How long the active controller collects records before it writes them to disk.
controller.quorum.auto.join.enable
    Whether a controller joins the voters of its cluster by itself (KIP-853).
controller.quorum.bootstrap.servers
    Addresses of the quorum, as host:port, from which the node learns the voters (KIP-853).
controller.quorum.election.backoff.max.ms
    The maximum random time that a candidate waits after a lost election.
controller.quorum.election.timeout.ms
    How long a voter waits in an election for a majority before it starts another.
controller.quorum.fetch.max.bytes
    The maximum size of a fetch from the metadata log. The first batch is returned even if it is larger.
controller.quorum.fetch.snapshot.max.bytes
    The maximum size of a FetchSnapshot response.
controller.quorum.fetch.timeout.ms
    How long a voter goes without a successful fetch from the leader before it starts an election, and a leader
    without fetches from a majority before it resigns.
controller.quorum.request.timeout.ms
    How long a request within the quorum waits for its response.
controller.quorum.retry.backoff.ms
    How long a node waits before it retries a failed request within the quorum.
controller.quorum.voters
    The voters of a static quorum, as id@host:port. If it is empty, the node is its own quorum or uses
    controller.quorum.bootstrap.servers.
controller.socket.timeout.ms
    The socket timeout of connections from the controller to brokers.
early.start.listeners
    Listeners that open before the authorizer has loaded its rules.
initial.broker.registration.timeout.ms
    How long a starting broker tries to register with the controller before it stops.
internal.metadata.delete.delay.millis
    How long deleted files of the metadata log stay on disk; for tests.
internal.metadata.log.segment.bytes
    As metadata.log.segment.bytes, but without a lower limit; for tests.
internal.metadata.max.batch.size.in.bytes
    The largest batch that the active controller writes to the metadata log; for tests.
metadata.log.dir
    The directory of the metadata log. If it is not set, the first log directory.
metadata.log.max.record.bytes.between.snapshots
    The bytes of new metadata records after which a snapshot is taken.
metadata.log.max.snapshot.interval.ms
    The time after which a snapshot is taken if the metadata has changed; 0 disables it.
metadata.log.segment.bytes
    The size at which a segment of the metadata log is rolled.
metadata.log.segment.ms
    The age at which a segment of the metadata log is rolled.
metadata.max.idle.interval.ms
    How often the active controller writes a no-op record if there are no changes, which shows that it is alive; 0
    disables it.
metadata.max.retention.bytes
    The size of the metadata log and its snapshots at which parts that a newer snapshot contains are deleted.
metadata.max.retention.ms
    How long metadata is kept that a newer snapshot contains.
node.id
    The id of this node, unique in the cluster. Ottla's default is 1.
process.roles
    The roles of this node: broker, controller or both. Ottla's default is both.
server.max.startup.time.ms
    How long the node may take to start before it stops; for tests.
unstable.api.versions.enable
    Whether unstable versions of requests are offered.
unstable.feature.versions.enable
    Whether unstable feature levels may be used.
"""
