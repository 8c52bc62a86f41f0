"""Whether the logic of a transform decides in which Spark partition a row is written.

A batch that died of one record is half written: the other partitions are committed. The sink refuses to go on with
another plan then, for rows might have moved. Where rows stay in the partition of the record they are made of, they
cannot: corrected logic may write the rest, and still each record is taken once.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame

from ottla.pipeline.spark.sink.plan import Operator, fingerprint, operators_of

# They make rows of rows where they are.
IN_PLACE = {"Project", "Filter", "Generate", "SubqueryAlias", "View", "CollectMetrics", "EventTimeWatermark"}
SOURCES = {"StreamingRelationV2", "StreamingRelation"}


def sink_options(records: DataFrame) -> dict[str, str]:
    """The fingerprint for the sink: of the source alone where the logic moves no row, else the sink's own."""
    fixed = fingerprint_of_source(operators_of(records._jdf.queryExecution().analyzed()))
    return {} if fixed is None else {"planFingerprint": fixed}


def fingerprint_of_source(operators: Iterable[Operator]) -> str | None:
    others = [operator._replace(depth=0) for operator in operators if operator.kind not in IN_PLACE]
    if len(others) != 1 or others[0].kind not in SOURCES:
        return None
    return fingerprint(others)
