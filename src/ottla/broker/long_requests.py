"""Requests with very many elements: a thread prepares them, and coordinators get them in slices.

So no turn of the event loop takes longer than a few milliseconds, whatever a client sends. A short request takes the
direct way.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.promise import Promise, completed
from ottla.broker.services import NodeServices
from ottla.model.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sized

Item = TypeVar("Item")
Result = TypeVar("Result")
T = TypeVar("T")

# Up to this size, decoding on the event loop takes a few milliseconds. Beyond it a thread does it.
REQUEST_BYTES_ON_LOOP = 32 * 1024
# A coordinator takes a few microseconds for each.
ELEMENTS_PER_SLICE = 1000


def is_long(lists: "Iterable[Sized]") -> bool:
    """Whether these lists have more elements together than fit into one slice. Stops counting there."""
    count = 0
    for each in lists:
        count += 1 + len(each)
        if count > ELEMENTS_PER_SLICE:
            return True
    return False


def prepare(services: NodeServices, work: Callable[[], T], *, in_thread: bool) -> Promise[T]:
    """The result of `work`, which must not read state that the event loop changes."""
    return services.message_thread.submit(work) if in_thread else completed(work())


def submit_in_slices(
    services: NodeServices,
    items: Sequence[Item],
    submit: Callable[[Sequence[Item]], "Promise[tuple[Result, ...] | KafkaError]"],
) -> "Promise[tuple[Result, ...] | KafkaError]":
    """The results of all items, in their order. One error fails all, though earlier slices have taken effect."""
    if len(items) <= ELEMENTS_PER_SLICE:
        return submit(items)
    starts = range(0, len(items), ELEMENTS_PER_SLICE)

    def merge(parts: list[Any]) -> tuple[Result, ...] | KafkaError:
        merged: list[Result] = []
        for part in parts:
            if isinstance(part, KafkaError):
                return part
            merged += part
        return tuple(merged)

    return services.scheduler.run(
        starts, lambda start: submit(items[start : start + ELEMENTS_PER_SLICE])
    ).then(merge)
