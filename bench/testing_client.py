"""`python -m bench.testing_client`: a test's first record with `ottla.testing`, timed from before the first import.

Prints one line of JSON. The start of Python itself is not counted.
"""

import time

BEGAN = time.monotonic()


def main() -> None:
    from ottla.testing import Kafka

    kafka = Kafka()
    kafka.start()
    ready_s = time.monotonic() - BEGAN
    kafka.produce("orders", "3 apples")
    (record,) = kafka.wait_for("orders", 1)
    read_s = time.monotonic() - BEGAN
    assert record.value == b"3 apples"
    kafka.close()
    began = time.monotonic()  # the second broker of a process: all modules are loaded
    with Kafka():
        again_s = time.monotonic() - began

    import json

    print(json.dumps({"ready_s": ready_s, "read_s": read_s, "again_s": again_s}))


if __name__ == "__main__":
    main()
