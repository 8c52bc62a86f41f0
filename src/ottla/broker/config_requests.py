"""What AlterConfigs and IncrementalAlterConfigs share: slices of very many resources, and the results.

The resources of both requests, and those of both responses, have fields of the same names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ottla.broker.long_requests import ELEMENTS_PER_SLICE, is_long
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import ApiError, ControllerCommand
from ottla.core.controller.image import ConfigResource

Changes = TypeVar("Changes", bound=tuple[object, ...])
Response = TypeVar("Response")
Result = TypeVar("Result")

Results = tuple[tuple[ConfigResource, ApiError], ...]


async def alter_configs(
    services: NodeServices,
    resources: Sequence[Any],
    changes_of: Callable[[Any], tuple[ConfigResource, Changes]],
    command: Callable[[tuple[tuple[ConfigResource, Changes], ...]], ControllerCommand[Results]],
    respond: Callable[[list[tuple[ConfigResource, ApiError]]], Response],
) -> Response:
    """Has the controller decide the commands of all slices of a request, one after the other."""
    in_thread = is_long(resource.configs for resource in resources)
    slices = (
        await services.message_thread.run(lambda: slices_of(map(changes_of, resources)))
        if in_thread
        else slices_of(map(changes_of, resources))
    )
    results: list[tuple[ConfigResource, ApiError]] = []
    for part in slices:
        decided: Results = await services.controller.submit(command(part))
        results += decided
    return await services.message_thread.run(lambda: respond(results)) if in_thread else respond(results)


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


def resource_of(requested: Any) -> ConfigResource:
    return ConfigResource(requested.resource_type, requested.resource_name)


def results_of(
    result_class: Callable[..., Result], results: Iterable[tuple[ConfigResource, ApiError]]
) -> tuple[Result, ...]:
    return tuple(
        result_class(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, error in results
    )
