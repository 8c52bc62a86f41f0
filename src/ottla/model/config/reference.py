"""Generates docs/configs.md from the definitions and descriptions of all configs."""

from collections.abc import Iterable

from ottla.model.config.definition import ConfigDef, ConfigType, ResourceType
from ottla.model.config.definitions import (
    BROKER_AREAS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
)
from ottla.model.config.documentation import documentation_of
from ottla.model.config.synonyms import TOPIC_SYNONYMS
from ottla.model.config.unsupported import unsupported_config

_INTRODUCTION = """\
# Configs

Every config of Apache Kafka 4.3, with Kafka's name, type and default. Ottla's own configs begin with `ottla.`.
`ottla configs reference` generates this page.

- A broker reads its configs from `--config server.properties` and `--set name=value`. It does not start with an unknown
  name or an invalid value.
- *Update* is what `ottla configs set` can change while a broker runs: nothing (read-only), the value of one broker
  (per-broker), or also the value of all brokers (cluster-wide).
- **Rejected**: it needs a feature that Ottla does not have. A broker does not start with it, and a change while it runs
  gets INVALID_CONFIG, unless the value is the default.
- **No effect**: Ottla accepts and reports the config, so that a file for Apache Kafka works, but does not use it. The
  reason follows.
- `listeners` and `listener.security.protocol.map` are read at startup. A change while the broker runs is rejected.
- `node.id`, `process.roles` and `controller.listener.names`, which Kafka requires, have defaults here, so that a
  single node needs no file. By default `ottla serve` listens on 127.0.0.1:9092 and keeps its data in `./data`.
"""


def reference_markdown() -> str:
    parts = [_INTRODUCTION, "## Topic configs\n", _table(ResourceType.TOPIC, TOPIC_CONFIGS.values())]
    parts += ["## Group configs\n", _table(ResourceType.GROUP, GROUP_CONFIGS.values())]
    parts += ["## Client metrics\n", _table(ResourceType.CLIENT_METRICS, CLIENT_METRICS_CONFIGS.values())]
    parts.append("## Broker configs\n")
    for area, configs in BROKER_AREAS.items():
        parts += [f"### {area}\n", _table(ResourceType.BROKER, configs)]
    return "\n".join(parts)


def _table(resource_type: ResourceType, configs: Iterable[ConfigDef]) -> str:
    last = {ResourceType.TOPIC: " broker config |", ResourceType.BROKER: " update |"}.get(resource_type, "")
    lines = [f"| name | type | default | allowed |{last} what it is |"]
    lines.append("| --- " * (lines[0].count("|") - 1) + "|")
    for config in configs:
        cells = [f"`{config.name}`", config.type.name.lower(), _default(config), _allowed(config)]
        if resource_type is ResourceType.TOPIC:
            cells.append(", ".join(f"`{name}`" for name, _ in TOPIC_SYNONYMS.get(config.name, ())))
        elif resource_type is ResourceType.BROKER:
            cells.append(config.scope.value)
        cells.append(
            (documentation_of(resource_type, config.name) or "") + _support_note(resource_type, config)
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _support_note(resource_type: ResourceType, config: ConfigDef) -> str:
    unsupported = unsupported_config(resource_type, config.name)
    if unsupported is None:
        return ""
    if unsupported.is_rejected:
        return f" **Rejected** unless it is the default: {unsupported.reason}."
    return f" **No effect:** {unsupported.reason}."


def _default(config: ConfigDef) -> str:
    text = config.default_text()
    return f"`{text}`" if text else ("null" if text is None else "")


def _allowed(config: ConfigDef) -> str:
    if config.type is ConfigType.BOOLEAN:
        return "true, false"
    return config.valid.allowed() if config.valid is not None else ""
