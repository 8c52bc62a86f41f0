"""The guide for people who write consumers shows the examples as they are, all of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "consumers.md").read_text()
SHOWN = re.findall(r"<!-- (\S+) -->\n\n```python\n(.*?)```\n", GUIDE, re.DOTALL)


def test_each_code_block_of_the_guide_is_the_example_that_it_names() -> None:
    assert [name for name, code in SHOWN if (ROOT / name).read_text() != code] == []


def test_the_guide_has_no_code_that_is_not_an_example() -> None:
    assert GUIDE.count("```python") == len(SHOWN)


def test_the_guide_shows_every_example() -> None:
    examples = {str(path.relative_to(ROOT)) for path in (ROOT / "examples" / "consumers").glob("*.py")}
    assert {name for name, _ in SHOWN} == examples
