"""Archives as tables, for `ottla pipeline sql` and for programs."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipeline.archive.columns import FILE_SCHEMA, TABLE_SCHEMA
from ottla.pipeline.archive.errors import explain_read_errors
from ottla.pipeline.archive.histories import histories_of
from ottla.pipeline.archive.store import Archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def archive_table(spark: "SparkSession", path: str, topic: str | None = None) -> "DataFrame":
    """All records of an archive, or of one topic, at this moment. Conditions on `date` and `hour` select files.

    If a topic was created again, its offsets occur twice; `topicId` tells them apart.
    """
    archive = Archive.at(path, spark)
    archive.check()
    archived = archive.load()
    tables = []
    for history in archived.histories if topic is None else histories_of(archived, topic):
        urls = [archive.files.url(file.path) for file in archived.files_of(history)]
        if urls:
            reader = spark.read.schema(FILE_SCHEMA).option("basePath", archive.files.url(history))
            topic_id = F.lit(archived.topic_ids.get(history)).cast("string")
            with explain_read_errors(archive.url):
                tables.append(reader.parquet(*urls).withColumn("topicId", topic_id))
    if not tables:
        return spark.createDataFrame([], TABLE_SCHEMA)
    return reduce(lambda one, other: one.unionByName(other), tables)


def register_views(spark: "SparkSession", archives: Mapping[str, str]) -> list[str]:
    """Creates a view for each archive, named as its sink, and for each of its topics. Returns the names.

    If names are equal, a sink comes before a topic, and the first archive with a topic before the others.
    """
    names = dict.fromkeys(archives)
    for sink, path in archives.items():
        archive_table(spark, path).createOrReplaceTempView(_quoted(sink))
        for topic in Archive.at(path, spark).summary().topics:
            if topic not in names:
                names[topic] = None
                archive_table(spark, path, topic).createOrReplaceTempView(_quoted(topic))
    return list(names)


def _quoted(name: str) -> str:
    """As SQL needs it for names with dots and dashes."""
    return f"`{name}`"
