"""`ottla topics`: list, create, describe, alter, partitions, delete, compaction."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.compaction import compaction
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.admin.topics import TopicDescription

app = typer.Typer(help="Topics: list, create, describe, change, delete.", no_args_is_help=True)
app.command()(compaction)

_Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
_Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")]
_Configs = Annotated[list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A topic config.")]


@app.command("list")
def list_command(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also internal topics, such as __consumer_offsets.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the topics with their number of partitions and replicas."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.topics import list_topics

    lines = list_topics(Cluster(bootstrap), internal=internal)
    if as_json:
        print_json(*(line._asdict() for line in lines))
    elif lines:
        print_table(["TOPIC", ">PARTITIONS", ">REPLICAS"], lines)
    else:
        print("No topics. Create one with: ottla topics create NAME", file=sys.stderr)


@app.command()
def create(
    topic: _Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", help="-1: the cluster's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", metavar="N", help="-1: the cluster's default.")
    ] = -1,
    config: _Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.topics import create_topic, topic_exists

    configs = parse_pairs("--config", config or [])
    cluster = Cluster(bootstrap)
    created = not (if_not_exists and topic_exists(cluster, topic))
    if created:
        create_topic(
            cluster, topic, partitions=partitions, replication_factor=replication_factor, configs=configs
        )
    _report(
        as_json,
        f"Created topic {topic}" if created else f"Topic {topic} exists",
        topic=topic,
        created=created,
    )


@app.command()
def describe(
    topics: _Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show partitions with leaders, replicas and offsets, and the configs that are not defaults."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.topics import describe_topics

    for number, topic in enumerate(describe_topics(Cluster(bootstrap), topics)):
        if as_json:
            print_json(_as_json(topic))
        else:
            print("\n" if number else "", end="")
            _print_topic(topic)


def _as_json(topic: "TopicDescription") -> dict[str, Any]:
    return topic._asdict() | {
        "partitions": [partition._asdict() for partition in topic.partitions],
        "configs": {line.name: line.value for line in topic.configs},
    }


def _print_topic(topic: "TopicDescription") -> None:
    internal = ", internal" if topic.is_internal else ""
    print(f"{topic.name}  (id {topic.topic_id}{internal})")
    print_table(
        [">PARTITION", ">LEADER", "REPLICAS", "IN SYNC", ">EARLIEST", ">LATEST"],
        [
            (
                partition.partition,
                "none" if partition.leader is None else partition.leader,
                ",".join(map(str, partition.replicas)),
                ",".join(map(str, partition.isr)),
                partition.earliest,
                partition.latest,
            )
            for partition in topic.partitions
        ],
    )
    if topic.configs:
        print()
        print_table(
            ["CONFIG", "VALUE", "SET BY"], [(c.name, c.value, source_name(c.source)) for c in topic.configs]
        )


def source_name(source: str) -> str:
    """ "topic" for DYNAMIC_TOPIC_CONFIG, "default broker" for DYNAMIC_DEFAULT_BROKER_CONFIG."""
    return source.removeprefix("DYNAMIC_").removesuffix("_CONFIG").replace("_", " ").lower()


@app.command()
def alter(
    topic: _Name,
    config: _Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Reset this config to its default."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change a topic's configs; those that are not named stay as they are."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.configs import alter_configs

    configs = parse_pairs("--config", config or [])
    if not configs and not delete_config:
        raise typer.BadParameter("nothing to change: set --config NAME=VALUE or --delete-config NAME")
    alter_configs(Cluster(bootstrap), "topic", topic, set=configs, unset=delete_config or [])
    _report(as_json, f"Changed topic {topic}", topic=topic, set=configs, unset=delete_config or [])


@app.command()
def partitions(
    topic: _Name,
    count: Annotated[
        int, typer.Argument(metavar="COUNT", help="The new number of partitions, not less than now.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic. Records stay where they are: keys may go to other partitions from now on."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.topics import create_partitions

    create_partitions(Cluster(bootstrap), topic, count)
    _report(as_json, f"Topic {topic} has {count} partitions", topic=topic, partitions=count)


@app.command()
def delete(
    topics: _Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do nothing for a topic that does not exist.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.topics import delete_topic, topic_exists

    cluster = Cluster(bootstrap)
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(topics)} with all records?", abort=True)
    for topic in topics:
        deleted = not (if_exists and not topic_exists(cluster, topic))
        if deleted:
            delete_topic(cluster, topic)
        message = f"Deleted topic {topic}" if deleted else f"Topic {topic} does not exist"
        _report(as_json, message, topic=topic, deleted=deleted)


def _report(as_json: bool, message: str, **fields: Any) -> None:
    if as_json:
        print_json(fields)
    else:
        print(message)
