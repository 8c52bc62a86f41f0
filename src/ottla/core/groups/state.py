"""What the machines of one shard share: the groups by id, the settings, and the cluster's topics."""

from ottla.core.groups.group import Group
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.topics import ClusterTopics


class GroupsState:
    """A group stands in `groups` under its own type; who needs a certain type asks with isinstance."""

    def __init__(self, settings: GroupSettings, topics: ClusterTopics) -> None:
        self.settings = settings
        self.topics = topics
        self.groups: dict[str, Group] = {}
