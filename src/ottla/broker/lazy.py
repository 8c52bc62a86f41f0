"""A service that is created when it is first needed, because importing and building it would slow down the start."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    __slots__ = ("_create", "_service")

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._service: T | None = None

    @property
    def created(self) -> T | None:
        """The service if it has been created. Does not create it."""
        return self._service

    def get(self) -> T:
        """The service. Creates it on the first call."""
        if self._service is None:
            self._service = self._create()
        return self._service
