"""For people who write consumers: two ways to do more than one thing at a time, on confluent-kafka.

`ConsumerThreads` runs one consumer per thread. `WorkerPool` runs one consumer with a pool of worker threads or
processes. Both commit an offset only when every record before it is done. They work on Ottla and on Apache Kafka.
"""

from ottla.workers.consumer_threads import ConsumerThreads
from ottla.workers.errors import (
    ConsumerError,
    DeadLetterError,
    HandlerError,
    WorkerDiedError,
    WorkersError,
    WorkerStartError,
)
from ottla.workers.pool import WorkerPool
from ottla.workers.record import Record
from ottla.workers.retry import Retry

__all__ = [
    "ConsumerError",
    "ConsumerThreads",
    "DeadLetterError",
    "HandlerError",
    "Record",
    "Retry",
    "WorkerDiedError",
    "WorkerPool",
    "WorkerStartError",
    "WorkersError",
]
