"""Sink: the fingerprint of a Python function changes with its code, and with nothing else."""

import contextlib
import functools
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla.pipeline.spark.sink.code import code_fingerprint
from ottla.pipeline.spark.sink.python_functions import code_of_command

BASE = """
import re
LIMIT = 3
PATTERN = re.compile("a+")
NAMES = {"b", "a", "c"}

class Rate:
    percent = 7
    def of(self, value):
        return value * self.percent

def rounded(value):
    return round(value, 2)

def price(value, *, factor=2):
    def inner(part):
        return part + LIMIT
    if PATTERN.match(str(value)) and value in NAMES:
        return None
    return rounded(Rate().of(inner(value)) * factor)
"""


def price_of(source: str, name: str = "price") -> Callable[..., Any]:
    module: dict[str, Any] = {"__name__": "transforms"}
    exec(compile(source, "transforms.py", "exec"), module)
    function: Callable[..., Any] = module[name]
    return function


def test_comments_lines_and_other_functions_do_not_change_it() -> None:
    changed = "# a comment\n\n" + BASE.replace("return None", "return None  # why") + "\ndef unused(): ...\n"
    assert code_fingerprint(price_of(BASE)) == code_fingerprint(price_of(changed))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* factor", "/ factor"),
        ("factor=2", "factor=3"),
        ("part + LIMIT", "part - LIMIT"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("round(value, 2)", "round(value, 3)"),
        ("percent = 7", "percent = 8"),
        ("value * self", "value + self"),
        ('"a+"', '"a*"'),
        ('"c"}', '"d"}'),
    ],
)
def test_a_change_in_whatever_it_uses_changes_it(old: str, new: str) -> None:
    assert BASE.count(old) == 1
    assert code_fingerprint(price_of(BASE)) != code_fingerprint(price_of(BASE.replace(old, new)))


@pytest.mark.parametrize("wrap", [contextlib.contextmanager, functools.cache, functools.partial])
def test_a_function_within_another_of_an_installed_package_is_found(wrap: Callable[..., Any]) -> None:
    changed = price_of(BASE.replace("percent = 7", "percent = 8"))
    assert code_fingerprint(wrap(price_of(BASE))) == code_fingerprint(wrap(price_of(BASE)))
    assert code_fingerprint(wrap(price_of(BASE))) != code_fingerprint(wrap(changed))


def test_cycles_end() -> None:
    source = "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\n"
    changed = source.replace("n != 0", "n > 0")
    assert code_fingerprint(price_of(source, "even")) == code_fingerprint(price_of(source, "even"))
    assert code_fingerprint(price_of(source, "even")) != code_fingerprint(price_of(changed, "even"))


def test_two_processes_give_one_fingerprint() -> None:
    program = f"""
import sys
from ottla.pipeline.spark.sink.code import code_fingerprint
module = {{"__name__": "transforms"}}
exec(compile({BASE!r}, "transforms.py", "exec"), module)
print(code_fingerprint(module["price"]))
"""
    seeds = ("1", "2")
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in seeds
    }
    assert found == {code_fingerprint(price_of(BASE))}
    assert re.fullmatch("[0-9a-f]{16}", found.pop())


def test_a_command_that_cannot_be_loaded_has_no_fingerprint() -> None:
    assert code_of_command(b"not a pickle") == ""
