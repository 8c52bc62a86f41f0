"""A program that behaves like a node: prints `ready HOST:PORT`, and ends on SIGTERM. Its arguments change that.

python fake_broker.py [fail | moving | silent | stubborn | unclean]

With `moving`, each process has another port.
"""

import os
import signal
import sys
import threading
from types import FrameType

stop = threading.Event()


def main(manner: str) -> int:
    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, signal.SIG_IGN if manner == "stubborn" else handle)
    print("starting", file=sys.stderr, flush=True)
    if manner == "fail":
        print("the disk is on fire", file=sys.stderr, flush=True)
        return 3
    if manner != "silent":
        print(f"ready 127.0.0.1:{os.getpid() if manner == 'moving' else 9092}", flush=True)
    stop.wait()
    print("stopped", file=sys.stderr, flush=True)
    return 4 if manner == "unclean" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
