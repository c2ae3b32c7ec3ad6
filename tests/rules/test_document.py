"""docs/rules.md lists every rule with the tests that prove it; this keeps the list and the tests together."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "rules.md"
ROW = re.compile(r"^\| (?P<code>[A-Z]+-[A-Z]*[0-9]*) \| (?P<promise>.+) \| (?P<proofs>.+) \|$", re.MULTILINE)
PROOF = re.compile(r"\[(?P<test>\w+)\]\(\.\./(?P<file>tests/[\w/]+\.py)\)")

Test = tuple[str, str]
"""The file, from the project's root, and the name of the test in it."""


def marks(expression: ast.AST) -> Iterator[str]:
    """The codes of every `pytest.mark.rule(...)` in an expression."""
    for node in ast.walk(expression):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="rule"), args=codes):
                yield from (ast.literal_eval(code) for code in codes)


def marked_in(module: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Every test of a file, with the codes that it is marked with; a `pytestmark` marks all of them."""
    common: set[str] = set()
    found: dict[str, set[str]] = {}
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                common.update(marks(value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.startswith("Test"):
                found[name] = set(marks(value))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                found[node.name] = {code for mark in node.decorator_list for code in marks(mark)}
    return ((name, codes | common) for name, codes in found.items())


def marked() -> dict[Test, set[str]]:
    """Every test of the project with its codes."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {
        (file.relative_to(ROOT).as_posix(), name): codes
        for file in files
        for name, codes in marked_in(ast.parse(file.read_text()))
    }


def documented() -> dict[str, list[Test]]:
    """By code: the tests that the document names."""
    return {
        row["code"]: [(proof["file"], proof["test"]) for proof in PROOF.finditer(row["proofs"])]
        for row in ROW.finditer(DOCUMENT.read_text())
    }


TESTS, RULES = marked(), documented()


def test_every_row_of_the_document_is_read() -> None:
    """No row hides from these tests by its form, and no code stands in two rows."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if re.match(r"\|\s*[A-Z]+-", line)]
    assert len(rows) == len(RULES) == 73


@pytest.mark.parametrize("code", RULES)
def test_a_rule_is_proven(code: str) -> None:
    """A rule has a test that carries its code, and the document names one."""
    assert [test for test, codes in TESTS.items() if code in codes]
    assert RULES[code]


def test_no_test_names_an_unknown_rule() -> None:
    """Whatever code a test carries stands in the document."""
    unknown: dict[str, list[Test]] = defaultdict(list)
    for test, codes in TESTS.items():
        for code in codes - RULES.keys():
            unknown[code].append(test)
    assert unknown == {}


def test_the_tests_that_are_named_exist_and_carry_the_code() -> None:
    """The document names no test that is gone, or that says nothing of the rule."""
    named = {(code, test) for code, tests in RULES.items() for test in tests}
    assert {(code, test) for code, test in named if code not in TESTS.get(test, ())} == set()


def test_rules_can_be_selected(request: pytest.FixtureRequest) -> None:
    """`-m rules` selects what proves any rule, `-k ISO_1` what proves that one."""
    request.node.add_marker(pytest.mark.rule("ISO-1"))
    request.node.ihook.pytest_itemcollected(item=request.node)
    assert request.node.get_closest_marker("rules")
    assert "ISO_1" in request.node.extra_keyword_matches
