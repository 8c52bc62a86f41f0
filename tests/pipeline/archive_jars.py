"""The jars with which Spark reaches s3a:// and reads Delta, and those of a small HDFS, fetched once through Maven.

For S3 they are Hadoop's client and the parts of Amazon's that it needs, without the bundle of several hundred
megabytes.
"""

import fcntl
import shutil
import subprocess
from functools import cache
from pathlib import Path

SDK = "2.35.4"
# group, artifact and version of each; those of ALONE without what they depend on: pyspark brings that.
WITH_ALL = {
    "s3": (
        ("software.amazon.awssdk", "s3", SDK),
        ("software.amazon.awssdk", "s3-transfer-manager", SDK),
        ("software.amazon.awssdk", "sts", SDK),
        ("software.amazon.awssdk", "netty-nio-client", SDK),
        ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    ),
    "hdfs": (("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),),
}
ALONE = {
    "s3": (("org.apache.hadoop", "hadoop-aws", "3.5.0"),),
    "delta": (("io.delta", "delta-spark_4.2_2.13", "4.4.0"), ("io.delta", "delta-storage", "4.4.0")),
    "hdfs": (("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),),
}
# pyspark brings its own.
NOT_WANTED = ("netty-buffer", "netty-c", "netty-h", "netty-r", "netty-t", "slf4j-", "commons-logging")
CACHE = Path(__file__).parents[2] / ".cache"
FETCH_TIMEOUT_S = 600


@cache
def jars_for(purpose: str) -> list[Path] | str:
    """The jars for "s3", "delta" or "hdfs", or the reason why there are none."""
    folder = CACHE / f"{purpose}-jars"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Two test workers may come here at once: the second waits for the first and finds the jars.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "libs").is_dir():
            reason = fetch(purpose, folder)
            if reason:
                return reason
    return sorted(jar for jar in (folder / "libs").glob("*.jar") if not jar.name.startswith(NOT_WANTED))


def spark_class_path() -> str:
    """Of a Spark that knows S3 and Delta, as far as the jars could be had."""
    found = [jars_for("s3"), jars_for("delta")]
    return ":".join(str(jar) for jars in found if isinstance(jars, list) for jar in jars)


def fetch(purpose: str, folder: Path) -> str:
    """The reason why it failed, if it did."""
    if shutil.which("mvn") is None:
        return f"no `mvn` on the PATH: the jars for {purpose} come from Maven"
    shutil.rmtree(folder / "partial", ignore_errors=True)
    (folder / "pom.xml").write_text(pom(purpose))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            [*command, "-DoutputDirectory=partial"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not bring the jars for {purpose} within {FETCH_TIMEOUT_S} s"
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        return f"Maven could not fetch the jars for {purpose}: {said[0] if said else 'it gave no reason'}"
    (folder / "partial").rename(folder / "libs")
    return ""


def pom(purpose: str) -> str:
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(dependency(*one) for one in WITH_ALL.get(purpose, ())) + "".join(
        dependency(*one, alone) for one in ALONE[purpose]
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        f"<groupId>ottla</groupId><artifactId>{purpose}</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )


def dependency(group: str, artifact: str, version: str, more: str = "") -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{more}</dependency>\n"
    )
