"""What AlterConfigs and IncrementalAlterConfigs share: very many resources are altered in slices."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.long_requests import ELEMENTS_PER_SLICE
from ottla.broker.services import NodeServices
from ottla.core.controller.image import ConfigResource

if TYPE_CHECKING:
    from ottla.core.controller.commands import ApiError, ControllerCommand

Changes = TypeVar("Changes", bound=tuple[object, ...])

Results = tuple[tuple[ConfigResource, "ApiError"], ...]


def slices_of(
    resources: Iterable[tuple[ConfigResource, Changes]],
) -> list[tuple[tuple[ConfigResource, Changes], ...]]:
    """Groups of resources with few configs together. Equal resources stay together: they are an error.

    Kafka decides each resource on its own too, so a client cannot tell slices from one command.
    """
    by_resource: dict[ConfigResource, list[tuple[ConfigResource, Changes]]] = {}
    for entry in resources:
        by_resource.setdefault(entry[0], []).append(entry)
    return list(_pack(by_resource.values()))


def _pack(
    groups: Iterable[list[tuple[ConfigResource, Changes]]],
) -> Iterator[tuple[tuple[ConfigResource, Changes], ...]]:
    together: list[tuple[ConfigResource, Changes]] = []
    size = 0
    for group in groups:
        added = sum(1 + len(changes) for _, changes in group)
        if together and size + added > ELEMENTS_PER_SLICE:
            yield tuple(together)
            together, size = [], 0
        together += group
        size += added
    yield tuple(together)


async def submit_slices(
    services: NodeServices,
    slices: list[tuple[tuple[ConfigResource, Changes], ...]],
    command: "Callable[[tuple[tuple[ConfigResource, Changes], ...]], ControllerCommand[Results]]",
) -> "list[tuple[ConfigResource, ApiError]]":
    """The results of all slices, one after the other."""
    results: list[tuple[ConfigResource, ApiError]] = []
    for part in slices:
        decided: Results = await services.controller.submit(command(part))
        results += decided
    return results
