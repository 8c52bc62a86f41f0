"""What Spark's own Kafka connector does on a broker, in a session of its own: its jars must be there from the start.

`python -m tests.pipeline.sparks_own_kafka BOOTSTRAP TOPIC FOLDER` prints what it found as JSON.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.spark_jars import spark_jars

from ottla.pipeline.spark.session import spark_session

ROWS = 3_000


def main(bootstrap: str, topic: str, folder: str) -> None:
    jars = spark_jars()
    assert isinstance(jars, list)
    conf = {"spark.ui.enabled": "false", "spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "1g"}
    spark = spark_session("sparks-own-kafka", "local[2]", conf)
    servers = {"kafka.bootstrap.servers": bootstrap}
    numbers = spark.range(0, ROWS, 1, 4).selectExpr(
        "cast(id as string) as key",
        "cast(id as string) as value",
        "array(named_struct('key', 'id', 'value', cast(cast(id as string) as binary))) as headers",
    )
    numbers.write.format("kafka").options(**servers).option("topic", topic).save()
    copied = f"{topic}-copied"
    reader = spark.readStream.format("kafka").options(**servers, subscribe=topic, includeHeaders="true")
    stream = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS // 2).load()
    writer = stream.select("key", "value", "headers").writeStream.format("kafka").options(**servers)
    query = (
        writer.option("topic", copied).option("checkpointLocation", folder).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    theirs, ours = (rows_of(spark, source, servers, copied) for source in ("kafka", "ottla"))
    seen = theirs.union(ours).groupBy(*theirs.columns).count().groupBy("count").count().collect()
    found = {
        "batches": len(query.recentProgress),
        "same schema": theirs.schema == ours.schema,
        "rows by how many see them": {row[0]: row[1] for row in seen},
    }
    spark.stop()
    print(json.dumps(found))


def rows_of(spark: SparkSession, source: str, servers: dict[str, str], topic: str) -> DataFrame:
    return spark.read.format(source).options(**servers, subscribe=topic, includeHeaders="true").load()


if __name__ == "__main__":
    main(*sys.argv[1:])
