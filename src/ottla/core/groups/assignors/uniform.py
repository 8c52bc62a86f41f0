"""`uniform`: the same number of partitions for all members, then as few moves as possible, then rack locality."""

from collections.abc import Mapping
from uuid import UUID

from ottla.core.groups.assignors import uniform_heterogeneous, uniform_homogeneous
from ottla.core.groups.assignors.draft import Draft
from ottla.core.groups.assignors.racks import improve_rack_locality
from ottla.core.groups.assignors.spec import GroupAssignment, GroupSpec
from ottla.core.groups.state import TopicInfo


class UniformAssignor:
    """Balance comes before stickiness, and stickiness before racks: no partition moves only because of its rack."""

    name = "uniform"

    def assign(self, group: GroupSpec, topics: Mapping[UUID, TopicInfo]) -> GroupAssignment:
        draft = Draft(group, topics)
        if group.is_homogeneous:
            uniform_homogeneous.balance(draft)
        else:
            uniform_heterogeneous.balance(draft)
        improve_rack_locality(draft)
        return draft.assignment()
