"""The server-side assignors of the consumer protocol (KIP-848)."""

from collections.abc import Mapping
from types import MappingProxyType

from ottla.core.groups.assignors.range import RangeAssignor
from ottla.core.groups.assignors.spec import Assignor, GroupAssignment, GroupSpec, MemberSpec
from ottla.core.groups.assignors.uniform import UniformAssignor

__all__ = ["ASSIGNORS", "Assignor", "GroupAssignment", "GroupSpec", "MemberSpec"]

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())}
)
