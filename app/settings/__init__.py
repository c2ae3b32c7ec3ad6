"""The configuration: typed, frozen, and refused as a whole when any part of it is wrong."""

from app.settings.api import ApiKey, ApiSettings, AuthSettings, Scope
from app.settings.client import ClientSettings, ProbeSettings
from app.settings.load import ConfigError, load_settings
from app.settings.operations import EventSettings, HealthSettings, LogSettings, ShutdownSettings
from app.settings.pg import PgSettings, PoolSettings
from app.settings.settings import Settings, SizingRow
from app.settings.tasks import TaskSettings, check_lease

__all__ = [
    "ApiKey",
    "ApiSettings",
    "AuthSettings",
    "ClientSettings",
    "ConfigError",
    "EventSettings",
    "HealthSettings",
    "LogSettings",
    "PgSettings",
    "PoolSettings",
    "ProbeSettings",
    "Scope",
    "Settings",
    "ShutdownSettings",
    "SizingRow",
    "TaskSettings",
    "check_lease",
    "load_settings",
]
