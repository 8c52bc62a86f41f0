"""For people who write consumers: two ways to handle more than one record at a time, on confluent-kafka.

`ConsumerThreads` runs one consumer per thread. `ParallelConsumer` runs one consumer and many threads or processes that
handle its records. Both commit an offset only when every record before it is handled. They work on Ottla and on Apache
Kafka.
"""

from ottla.consumer.consumer_threads import ConsumerThreads
from ottla.consumer.errors import (
    ConsumerError,
    DeadLetterError,
    FatalClientError,
    HandlerError,
    ProcessDiedError,
    ProcessStartError,
)
from ottla.consumer.parallel_consumer import ParallelConsumer
from ottla.consumer.record import Record
from ottla.consumer.retry import Retry

__all__ = [
    "ConsumerError",
    "ConsumerThreads",
    "DeadLetterError",
    "FatalClientError",
    "HandlerError",
    "ParallelConsumer",
    "ProcessDiedError",
    "ProcessStartError",
    "Record",
    "Retry",
]
