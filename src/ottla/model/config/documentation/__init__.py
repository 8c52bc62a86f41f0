"""A description of each config in one or two sentences. The texts are imported only when they are needed."""

from functools import cache
from importlib import import_module

from ottla.model.config.definition import ResourceType
from ottla.model.config.definitions import GROUP_CONFIGS, without_listener_prefix
from ottla.model.config.synonyms import GROUP_SYNONYMS, TOPIC_SYNONYMS

_BROKER_MODULES = (
    "quorum",
    "network",
    "log",
    "replication",
    "groups",
    "transactions",
    "security",
    "remote",
    "general",
)
_TOPIC_OF = {synonyms[0][0]: topic for topic, synonyms in TOPIC_SYNONYMS.items()}
_GROUP_OF = {broker: group for group, broker in GROUP_SYNONYMS.items()}


def documentation_of(resource_type: int, name: str) -> str | None:
    """None if there is no such config."""
    if resource_type == ResourceType.TOPIC:
        return _texts("topic").get(name)
    if resource_type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        return _texts("group").get(name)
    return _broker_text(without_listener_prefix(name))


def _broker_text(name: str) -> str | None:
    for module in _BROKER_MODULES:
        text = _texts(module).get(name)
        if text:
            return text
    if name in _TOPIC_OF:
        topic = _TOPIC_OF[name]
        return f"The default of the topic config {topic}. {_texts('topic')[topic]}"
    if name in _GROUP_OF:
        group = _GROUP_OF[name]
        return f"The default of the group config {group}. {_texts('group')[group]}"
    return _bound(name)


def _bound(name: str) -> str | None:
    """group.consumer.min.session.timeout.ms bounds the group config consumer.session.timeout.ms."""
    for bound, word in ((".min.", "minimum"), (".max.", "maximum")):
        kind, found, setting = name.partition(bound)
        group = f"{kind.removeprefix('group.')}.{setting}"
        if found and group in GROUP_CONFIGS:
            return f"The {word} of the group config {group} and of group.{group}."
    return None


@cache
def _texts(module: str) -> dict[str, str]:
    text: str = import_module(f"{__name__}.{module}").TEXT
    texts: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(" "):
            texts[name] = f"{texts[name]} {line.strip()}".strip()
        elif line:
            name = line
            texts[name] = ""
    return texts
