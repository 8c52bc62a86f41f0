"""Style as tests. What breaks a rule today may be written down below with its size, and may then only shrink."""

import ast
import re

from tests.tidy.repository import files, functions, python_files, text, tree

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600

# path:function -> lines it has now. An entry that is no longer needed, or too generous, fails the test.
LONG_FUNCTIONS: dict[str, int] = {}
LONG_FILES: dict[str, int] = {}

UNREASONED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b(?!: (?:\S+ ){3,})")
# Folders of somebody's machine. Kafka's own default for log.dirs is the one path of this kind that has a right to be.
MACHINE_PATH = re.compile(
    r"(?<![\w.$}/*-])/(?:home|Users|work|root|tmp)/(?!kafka-logs\b|kraft-combined-logs\b)[\w.]"
)
REGISTRY = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|repo1?\.maven\.(?:org|apache\.org)|central\.sonatype"
    r"|yarnpkg\.com|index-url|registry\s*=\s*http)",
    re.IGNORECASE,
)
# The shell takes these from `env`, so that a seed decides them in simulation.
UNSEEDED_MODULES = {"time", "secrets"}
UNSEEDED_NAMES = {"uuid1", "uuid4", "urandom", "getrandom"}
SHELL = ("src/ottla/broker/", "src/ottla/storage/", "src/ottla/rpc/")


def test_a_function_fits_a_screen() -> None:
    found = {
        f"{function.path}:{function.name}": function.lines
        for name in python_files("src/", "bench/")
        for function in functions(name)
        if function.lines > FUNCTION_LINES_MAX
    }
    assert found == LONG_FUNCTIONS, (
        f"functions have at most {FUNCTION_LINES_MAX} lines: split by what it decides"
    )


def test_a_file_has_one_idea() -> None:
    sizes = {name: text(name).count("\n") for name in python_files("src/", "bench/")}
    found = {name: lines for name, lines in sizes.items() if lines > FILE_LINES_MAX}
    assert found == LONG_FILES, f"files have at most {FILE_LINES_MAX} lines: split by responsibility"


def test_a_module_opens_with_what_it_is_for() -> None:
    modules = {name: tree(name) for name in python_files("src/")}
    silent = [name for name, module in modules.items() if module.body and not ast.get_docstring(module)]
    assert silent == [], "a module needs a sentence or two at its top"


def test_work_that_is_left_open_says_why() -> None:
    assert _lines_that_match(UNREASONED) == []


def test_no_file_names_a_folder_of_a_machine() -> None:
    assert _lines_that_match(MACHINE_PATH) == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert _lines_that_match(REGISTRY) == []


def test_tests_wait_for_conditions_and_never_sleep_for_luck() -> None:
    """A helper may sleep between two looks at a condition, or to pace a load; a test may not."""
    found = []
    for name in python_files("tests/"):
        for function in ast.walk(tree(name)):
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                found += [f"{name}:{node.lineno}" for node in ast.walk(function) if _is_sleep(node)]
    assert found == []


def test_the_shell_takes_time_and_chance_from_env() -> None:
    found = []
    for name in python_files(*SHELL):
        found += [f"{name}:{node.lineno}" for node in ast.walk(tree(name)) if _is_unseeded(node)]
    assert found == [], "use env.clock, env.random or the event loop's time"


def _lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in files()
        if not name.startswith(("LICENSE", "tests/tidy/"))
        for number, line in enumerate(text(name).splitlines(), 1)
        if pattern.search(line)
    ]


def _is_sleep(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "time"
    )


def _is_unseeded(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name in UNSEEDED_MODULES | {"random"} for name in names)
        case ast.ImportFrom(module=module, names=names):
            wanted = {name.name for name in names}
            # `Random` itself is the type of env.random.
            return module in UNSEEDED_MODULES or (module == "random" and wanted != {"Random"})
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in UNSEEDED_NAMES
    return False
