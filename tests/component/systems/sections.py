from typing import Any

from app.settings import ClientSettings, load_settings

PATIENT = {"connect_timeout": 5, "read_timeout": 10, "total_timeout": 20}
QUICK = {"connect_timeout": 0.2, "read_timeout": 0.4, "total_timeout": 1.6}
ONCE = {"attempts": 1, "backoff": 0.01, "backoff_cap": 0.02}
TWICE = {"attempts": 2, "backoff": 0.01, "backoff_cap": 0.02}


def section(base_url: str, **changes: Any) -> ClientSettings:
    """A system's section as the default file has it, with `changes`; patient, and without repetition."""
    default = load_settings({}).client["insurance"].model_dump()
    return ClientSettings.model_validate({**default, **PATIENT, "retry": ONCE, "base_url": base_url, **changes})
