"""docs/scenarios.md says what is so."""

import ast
from pathlib import Path

import pytest

from tests.scenarios import PAGE, ROOT, scenarios

FAULTS = Path(__file__).parent
ABOUT_THE_SUITE = {"test_invariants.py", "test_page.py"}


def names_in(file: Path) -> set[str]:
    functions = [
        node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {node.name for node in functions if node.name.startswith("test_")}


def test_scenarios_are_numbered_and_proven() -> None:
    """The scenarios are counted without gaps, and every one has its proof."""
    found = scenarios()
    assert [scenario.number for scenario in found] == list(range(1, len(found) + 1))
    assert len(found) == sum(line.startswith("| ") and line[2].isdigit() for line in PAGE.read_text().splitlines())
    assert [scenario.number for scenario in found if not scenario.proofs] == []


@pytest.mark.parametrize("proof", sorted({proof for scenario in scenarios() for proof in scenario.proofs}))
def test_a_proof_is_a_test(proof: str) -> None:
    """What the page calls a proof is a test that exists."""
    file, _, name = proof.partition("::")
    assert name in names_in(ROOT / "tests" / file)


def test_no_fault_is_left_out() -> None:
    """Every test of this folder proves a scenario of the page."""
    proofs = {proof for scenario in scenarios() for proof in scenario.proofs}
    files = [file for file in sorted(FAULTS.glob("test_*.py")) if file.name not in ABOUT_THE_SUITE]
    assert {f"faults/{file.name}::{name}" for file in files for name in names_in(file)} <= proofs
