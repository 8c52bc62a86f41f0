"""A transform as a stage: reads topics, runs the user's logic on their rows, and writes records exactly once."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.sink.plan import in_place_fingerprint, operators_of
from ottla.pipeline.stage import Context, Finding
from ottla.pipeline.topics import connect, missing_topics
from ottla.pipeline.transform.columns import with_origin
from ottla.pipeline.transform.dead_letters import Output, as_records
from ottla.pipeline.transform.logic import load_function, load_sql
from ottla.pipeline.transform.settings import TransformSettings


class Transform:
    Settings = TransformSettings

    def __init__(self, name: str, settings: TransformSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context

    def check(self) -> Iterator[Finding]:
        where = f"[transforms.{self.name}]"
        found = [Finding(where, what, remedy) for what, remedy in contradictions(self.settings)]
        yield from found
        try:
            if not found:
                self.logic()
        except PipelineError as error:
            yield Finding(where, error.what, error.remedy)
        topics = {*self.settings.topics, self.settings.to, self.settings.dead_letters} - {""}
        present = connect(self.context.cluster).metadata().topics
        yield from missing_topics(topics, present, self.context, where)

    def start(self, spark: SparkSession, trigger: Mapping[str, Any]) -> StreamingQuery:
        settings = self.settings
        output = Output(
            self.name, settings.topics, settings.to, settings.dead_letters, settings.origin_headers
        )
        records = self.records(spark, output)
        # Without one, the sink makes the fingerprint from the whole plan.
        fingerprint = in_place_fingerprint(operators_of(records))
        options = {} if fingerprint is None else {"planFingerprint": fingerprint}
        return self.context.to_topics(records, self.name, **options).trigger(**trigger).start()

    def records(
        self, spark: SparkSession, output: Output, source: str = "ottla", **options: str
    ) -> DataFrame:
        """The stream of records that the transform writes. `options` are for the source, such as startingOffsets."""
        for what, remedy in contradictions(self.settings):
            raise PipelineError(f"[transforms.{self.name}]: {what}", remedy)
        reading = {
            "maxOffsetsPerTrigger": str(self.settings.max_records_per_batch),
            "failOnDataLoss": str(self.settings.fail_on_data_loss).lower(),
        }
        raw = self.context.stream(spark, ",".join(self.settings.topics), source, **{**reading, **options})
        return as_records(self.logic()(spark, with_origin(raw)), output)

    def logic(self) -> Callable[[SparkSession, DataFrame], DataFrame]:
        """Reads the file at every call: a transform that is restarted runs the file as it is now."""
        settings, folder = self.settings, self.context.folder
        if settings.sql:
            return load_sql(folder / settings.sql, settings.options)
        function = load_function(folder, settings.function, settings.options)
        return lambda _, raw: function(raw)


def contradictions(settings: TransformSettings) -> Iterator[tuple[str, str]]:
    """Errors in the settings themselves: what is wrong, and what to do."""
    if bool(settings.function) == bool(settings.sql):
        how_many = "both `function` and `sql`" if settings.sql else "neither `function` nor `sql`"
        yield f"It has {how_many}.", "Set exactly one of them."
    if not settings.topics:
        yield "`from` names no topic.", "Name the topic that it reads."
    for name in ("to", "dead_letters"):
        topic = getattr(settings, name)
        if topic in settings.topics:
            yield (
                f"`{name}` is {topic}, which the transform reads.",
                "Name another topic: it would read its own records forever.",
            )
    if settings.dead_letters == settings.to:
        yield f"`to` and `dead_letters` are both {settings.to}.", "Name two topics."
    if settings.max_records_per_batch < 1:
        yield f"`max_records_per_batch` is {settings.max_records_per_batch}.", "Set it to 1 or more."
