"""An archive on S3 from beginning to end, in a session of its own: its jars must be there from the start.

`python -m tests.pipeline.archive_on_s3 BOOTSTRAP ENDPOINT TOPIC FOLDER` prints what it found as JSON.
"""

import json
import sys
from pathlib import Path

from tests.pipeline.archiving import (
    END_OF_RECORDS_MS,
    make_topic,
    produce,
    records_of,
    reload_of,
    run_all,
    sink,
    some_records,
)
from tests.pipeline.s3_jars import s3_jars

from ottla.pipeline.archive.files import files_at
from ottla.pipeline.archive.merging import merge
from ottla.pipeline.archive.table import archive_table
from ottla.pipeline.archive.verify import verify
from ottla.pipeline.spark.session import spark_session
from ottla.pipeline.stage import Cluster, Context

PATH = "s3a://archives/of raw"
RECORDS = 100


def main(bootstrap: str, endpoint: str, topic: str, folder: str) -> None:
    jars = s3_jars()
    assert isinstance(jars, list)
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, jars)),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": "secret",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    spark = spark_session("archive-on-s3", master="local[2]", conf=conf)
    cluster = Cluster(bootstrap)
    context = Context(f"s3-{topic}", cluster, Path(folder), "s3a://archives/checkpoints")
    back = f"{topic}-back"
    make_topic(bootstrap, topic)
    make_topic(bootstrap, back)
    archive = sink(context, topic, PATH)
    for _ in range(2):
        produce(bootstrap, topic, some_records(RECORDS))
        run_all(spark, archive)
    merged = merge(spark, PATH, END_OF_RECORDS_MS)
    files = files_at(PATH, spark)
    found = {
        "whole": verify(spark, cluster, PATH, deep=True).sentences(),
        "merged": sum(one.records for one in merged),
        "rows": archive_table(spark, PATH, topic).count(),
        "staging": files.names("_staging"),
        "written twice": [files.create("once", "first"), files.create("once", "second"), files.read("once")],
    }
    run_all(spark, reload_of(context, "back", PATH, to=back))
    found["same"] = records_of(spark, cluster, back) == records_of(spark, cluster, topic)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
