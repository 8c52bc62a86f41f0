"""Rules of style as tests. What breaks a rule may be listed with its size or its reason; the lists only shrink."""

import ast
import re
from functools import cache

from tests.tidy.repository import files, functions, python_files, text, tree

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600

# path:function -> its lines. An entry that is not needed any more, or is too large, fails the test.
LONG_FUNCTIONS: dict[str, int] = {}
LONG_FILES: dict[str, int] = {}

UNREASONED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b(?!: (?:\S+ ){3,})")
# Folders of somebody's machine. Kafka's own default for log.dirs is the only such path that is allowed.
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
# path:test -> why it sleeps in real time. Sleeps on the virtual-time loop of `ottla.sim` take no time and are exact.
REAL_SLEEPS = {
    "tests/unit/env/test_real_network.py:test_connections_to_a_paused_listener_are_accepted_when_it_resumes": (
        "that nothing is accepted meanwhile has no condition to wait for"
    ),
    "tests/unit/env/test_real_network.py:test_a_listener_that_runs_out_of_descriptors_waits_and_retries": (
        "that nothing is accepted meanwhile has no condition to wait for"
    ),
    "tests/unit/env/test_loop_watch.py:test_a_long_turn_is_logged_with_the_code_that_took_it": (
        "the watch must have begun before the loop is held"
    ),
}


def test_functions_fit_a_screen() -> None:
    found = {
        f"{function.path}:{function.name}": function.lines
        for name in python_files("src/", "bench/")
        for function in functions(name)
        if function.lines > FUNCTION_LINES_MAX
    }
    assert found == LONG_FUNCTIONS, (
        f"functions have at most {FUNCTION_LINES_MAX} lines: split them by what they decide"
    )


def test_files_are_short() -> None:
    sizes = {name: text(name).count("\n") for name in python_files("src/", "bench/")}
    found = {name: lines for name, lines in sizes.items() if lines > FILE_LINES_MAX}
    assert found == LONG_FILES, f"files have at most {FILE_LINES_MAX} lines: split them by responsibility"


def test_modules_have_a_docstring() -> None:
    modules = {name: tree(name) for name in python_files("src/")}
    silent = [name for name, module in modules.items() if module.body and not ast.get_docstring(module)]
    assert silent == [], "a module needs a sentence or two at its top"


def test_open_work_has_a_reason() -> None:
    assert _lines_that_match(UNREASONED) == []


def test_no_file_names_a_folder_of_a_machine() -> None:
    assert _lines_that_match(MACHINE_PATH) == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert _lines_that_match(REGISTRY) == []


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    """A helper may sleep between two looks at a condition, or to pace a load; a test may not."""
    found = {
        f"{name}:{function.name}"
        for name in python_files("tests/")
        if "sleep" in text(name)  # to parse only few files
        for function in ast.walk(tree(name))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and function.name.startswith("test_")
        and any(_sleeps(node, name) for node in ast.walk(function))
    }
    assert found == set(REAL_SLEEPS), "wait for a condition, or list the test with its reason"


def test_the_shell_takes_time_and_chance_from_env() -> None:
    found = []
    for name in python_files(*SHELL):
        found += [
            f"{name}:{getattr(node, 'lineno', 0)}" for node in ast.walk(tree(name)) if _is_unseeded(node)
        ]
    assert found == [], "use env.clock, env.random or the event loop's time"


def _lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in files()
        if not name.startswith(("LICENSE", "tests/tidy/"))
        for number, line in enumerate(text(name).splitlines(), 1)
        if pattern.search(line)
    ]


def _sleeps(node: ast.AST, path: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="sleep")):
            return True
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[ast.Constant(value=seconds)]
        ):
            # A sleep of 0 gives way to other tasks.
            return seconds != 0 and not _is_on_virtual_time(path)
    return False


@cache
def _is_on_virtual_time(path: str) -> bool:
    """Whether a test file, or a helper that it imports, uses the simulated world. Tests of `env` use the real one."""
    if path.startswith("tests/unit/env/"):
        return False
    imported = [node.module or "" for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom)]
    helpers = [f"{name.replace('.', '/')}.py" for name in imported if name.startswith("tests.")]
    return any(name.startswith("ottla.sim") for name in imported) or any(
        _is_on_virtual_time(helper) for helper in helpers if helper in files()
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
