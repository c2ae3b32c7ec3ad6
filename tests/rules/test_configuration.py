"""Where numbers stand, and that they arrive."""

import ast
from pathlib import Path

import pytest

from app.settings import ConfigError, load_settings
from app.wiring import check_wiring, open_wiring
from tests.rules.sources import modules

NOWHERE = "postgresql://u@127.0.0.1:1/orders"


@pytest.mark.rule("CFG-1", "CFG-2", "TO-2", "CB-3")
async def test_a_sections_numbers_are_its_systems_numbers() -> None:
    """What the environment says of one system is how that system is built, and no other."""
    settings = load_settings(
        {
            "ORDERS_PG__DSN": NOWHERE,
            "ORDERS_CLIENT__RECEIPT__MAX_CONCURRENT": "3",
            "ORDERS_CLIENT__RECEIPT__CONNECT_TIMEOUT": "0.7",
            "ORDERS_CLIENT__RECEIPT__READ_TIMEOUT": "2.5",
            "ORDERS_CLIENT__RECEIPT__BREAKER__WINDOW": "17",
        }
    )
    async with open_wiring(settings, "api") as wiring:
        built = {
            name: (
                system.policy.snapshot().capacity,
                system.policy.snapshot().window,
                system.client._connector.limit,
                system.client._timeout["connect"],
                system.client._timeout["read"],
                system.policy._breaker.settings.failure_rate,
            )
            for name, system in wiring.systems.items()
        }
    assert built == {
        "insurance": (8, 50, 10, 1, 3, 0.5),
        "sber": (4, 50, 5, 1, 3, 0.3),
        "receipt": (3, 17, 4, 0.7, 2.5, 0.5),
        "odnakassa": (4, 50, 5, 1, 3, 0.5),
        "orderbook": (4, 50, 5, 1, 3, 0.5),
    }


@pytest.mark.rule("CFG-3")
@pytest.mark.parametrize("system", ["insurance", "sber", "receipt", "odnakassa", "orderbook"])
def test_a_system_without_its_section_does_not_start(system: str) -> None:
    """The section under the system's own name is not optional, and no other name stands in for it."""
    settings = load_settings({})
    check_wiring(settings)
    sections = {name: section for name, section in settings.client.items() if name != system}
    renamed = {**sections, f"{system}_client": settings.client[system]}
    with pytest.raises(ConfigError, match=f"client.{system}: missing"):
        check_wiring(settings.model_copy(update={"client": renamed}))


@pytest.mark.rule("CFG-X1")
def test_adapters_hold_no_numbers() -> None:
    """No limit, timeout or count stands in an adapter: there is nothing to tune but the configuration."""
    adapters = {name: path for name, path in modules().items() if name.endswith("/adapter.py")}
    assert len(adapters) == 5
    assert {name: found for name, path in adapters.items() if (found := numbers_in(path))} == {}


def numbers_in(module: Path) -> list[object]:
    constants = [node.value for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Constant)]
    return [value for value in constants if isinstance(value, int | float) and not isinstance(value, bool)]
