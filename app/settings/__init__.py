"""The configuration: typed, frozen, and refused as a whole when any part of it is wrong."""

from app.settings.api import ApiKey, ApiSettings, AuthSettings, Scope
from app.settings.client import ClientSettings, ProbeSettings
from app.settings.events import EventSettings, WebhookSettings
from app.settings.load import ConfigError, load_settings
from app.settings.operations import HealthSettings, LogSettings, ShutdownSettings
from app.settings.pg import PgSettings, PoolSettings
from app.settings.retention import RetentionSettings
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
    "RetentionSettings",
    "Scope",
    "Settings",
    "ShutdownSettings",
    "SizingRow",
    "TaskSettings",
    "WebhookSettings",
    "check_lease",
    "load_settings",
]
