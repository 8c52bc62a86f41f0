"""Runs every test of docs/testing.md, as a reader would: copied into a file, with the fixtures of the plugin."""

import re
from importlib import import_module
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = [
    (title, code)
    for section in re.split(r"^##+ ", GUIDE.read_text(), flags=re.MULTILINE)
    for title, code in [
        (section.partition("\n")[0], "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)))
    ]
    if code
]


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[title for title, _ in EXAMPLES])
def test_the_tests_of_a_section_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, code: str):
    if "spark" in code:
        import_module("pyspark")  # a test that lacks a package of an extra is skipped (tests/extras.py)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(code)
    result = pytester.runpytest_subprocess("-p", "ottla.testing.pytest_plugin", timeout=280)
    tests = len(re.findall(r"^ *def test_", code, re.M))
    result.assert_outcomes(passed=tests)
