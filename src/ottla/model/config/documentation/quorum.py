"""Texts for broker configs of identity, the quorum, the controller and the metadata log."""

TEXT = """
broker.heartbeat.interval.ms
    How often a broker tells the active controller that it lives.
broker.id
    The older name of node.id.
broker.rack
    Where the broker stands. Replicas are spread over racks, and consumers may read from the nearest.
broker.session.timeout.ms
    How long the controller waits for a heartbeat before it fences the broker.
controller.listener.names
    Which of the listeners belong to the controller. A node that is its own quorum needs none in `listeners`.
controller.performance.always.log.threshold.ms
    A controller event that takes longer than this is always logged.
controller.performance.sample.period.ms
    How often the controller logs how long its events take.
controller.quorum.append.linger.ms
    How long the active controller collects records before it writes them to disk.
controller.quorum.auto.join.enable
    Whether a controller joins the voters of its cluster by itself (KIP-853).
controller.quorum.bootstrap.servers
    Where to find the quorum, as host:port; the voters are then learned from it (KIP-853).
controller.quorum.election.backoff.max.ms
    The most that a candidate waits, at random, after a lost election.
controller.quorum.election.timeout.ms
    How long a voter waits in an election for a majority before it starts another.
controller.quorum.fetch.max.bytes
    The most that one fetch of the metadata log returns; a larger first batch is returned all the same.
controller.quorum.fetch.snapshot.max.bytes
    The most that one FetchSnapshot request returns.
controller.quorum.fetch.timeout.ms
    How long a voter goes without a successful fetch from the leader before it starts an election, and a leader
    without fetches from a majority before it resigns.
controller.quorum.request.timeout.ms
    How long a request within the quorum waits for its response.
controller.quorum.retry.backoff.ms
    How long to wait before a failed request within the quorum is sent again.
controller.quorum.voters
    The voters of a quorum that does not change, as id@host:port. Empty: the node is a quorum of its own, or finds
    one by controller.quorum.bootstrap.servers.
controller.socket.timeout.ms
    The socket timeout of connections from the controller to brokers.
early.start.listeners
    Listeners that open before the authorizer has loaded its rules.
initial.broker.registration.timeout.ms
    How long a starting broker tries to register with the controller before it gives up and stops.
internal.metadata.delete.delay.millis
    How long deleted files of the metadata log stay on disk: for tests.
internal.metadata.log.segment.bytes
    As metadata.log.segment.bytes, but without a lower limit: for tests.
internal.metadata.max.batch.size.in.bytes
    The largest batch that the active controller writes to the metadata log: for tests.
metadata.log.dir
    The directory of the metadata log. Where it is not set, the first of the log directories.
metadata.log.max.record.bytes.between.snapshots
    After how many bytes of new metadata records a snapshot is taken.
metadata.log.max.snapshot.interval.ms
    After how much time a snapshot is taken, if anything changed; 0 sets no time.
metadata.log.segment.bytes
    The size at which a segment of the metadata log is closed.
metadata.log.segment.ms
    The age at which a segment of the metadata log is closed.
metadata.max.idle.interval.ms
    How often the active controller writes a no-op record when nothing else happens, so that the offset shows that it
    lives; 0 writes none.
metadata.max.retention.bytes
    How large the metadata log and its snapshots may grow before what a newer snapshot covers is deleted.
metadata.max.retention.ms
    How long metadata is kept that a newer snapshot covers.
node.id
    The number of this node, unique in the cluster. Ottla's default is 1.
process.roles
    What this node is: broker, controller or both. Ottla's default is both.
server.max.startup.time.ms
    How long the node may take to start before it gives up: for tests.
unstable.api.versions.enable
    Whether versions of the protocol that are still being made are offered.
unstable.feature.versions.enable
    Whether feature levels that are still being made may be used.
"""
