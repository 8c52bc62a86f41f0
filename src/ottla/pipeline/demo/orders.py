"""Generates orders as files in a spool folder. A few of them are invalid."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event, Thread

_CUSTOMERS = ("ada", "bob", "cleo", "dan", "eve", "finn", "gro", "hal")
_PRICES = {"apples": 50, "pears": 80, "plums": 35, "cherries": 420, "quinces": 110}
_INVALID_SHARE = 0.02
ORDERS_PER_FILE = 500
PAUSE_S = 1.0


def order(number: int, random: Random) -> str:
    """One line: an order as JSON. A few are cut off, or have the quantity 0."""
    item = random.choice(list(_PRICES))
    fields = {
        "id": number,
        "customer": random.choice(_CUSTOMERS),
        "item": item,
        "quantity": random.randint(1, 9),
        "price": _PRICES[item] / 100,
    }
    if random.random() >= _INVALID_SHARE:
        return json.dumps(fields)
    if random.random() < 0.5:
        return json.dumps(fields)[: random.randint(1, 40)]
    return json.dumps(fields | {"quantity": 0})


def write_file(spool: Path, number: int, random: Random) -> None:
    """Under a name that the pipeline ignores until the file is complete."""
    first = number * ORDERS_PER_FILE
    lines = (order(first + place, random) for place in range(1, ORDERS_PER_FILE + 1))
    unfinished = spool / f".orders-{number:08}"
    unfinished.write_text("".join(f"{line}\n" for line in lines))
    unfinished.rename(spool / f"orders-{number:08}.jsonl")


def next_number(spool: Path) -> int:
    """The number after the files of earlier runs, also those that the pipeline has renamed."""
    numbers = [int(file.name[7:15]) for file in spool.glob("orders-*") if file.name[7:15].isdigit()]
    return max(numbers, default=-1) + 1


@contextmanager
def order_generator(spool: Path) -> Iterator[None]:
    """Writes a file every second until the block ends."""
    spool.mkdir(parents=True, exist_ok=True)
    stop = Event()

    def work() -> None:
        number = next_number(spool)
        random = Random(number)
        while not stop.wait(PAUSE_S):
            write_file(spool, number, random)
            number += 1

    thread = Thread(target=work, name="orders", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
