"""The configuration: typed, frozen, and refused as a whole when any part of it is wrong."""

from app.settings.api import ApiKey, ApiSettings, AuthSettings, Scope
from app.settings.client import ClientSettings, ProbeSettings
from app.settings.events import EventSettings
from app.settings.invariants import InvariantSettings
from app.settings.load import ConfigError, load_settings
from app.settings.operations import HealthSettings, LogSettings, ShutdownSettings
from app.settings.pg import PgSettings, PoolSettings
from app.settings.receivers import NatsSettings, ReceiverSettings, WebhookSettings
from app.settings.retention import RetentionSettings
from app.settings.settings import Settings, SizingRow
from app.settings.tasks import TaskSettings, check_lease
from app.settings.telemetry import TelemetrySettings

__all__ = [
    "ApiKey",
    "ApiSettings",
    "AuthSettings",
    "ClientSettings",
    "ConfigError",
    "EventSettings",
    "HealthSettings",
    "InvariantSettings",
    "LogSettings",
    "NatsSettings",
    "PgSettings",
    "PoolSettings",
    "ProbeSettings",
    "ReceiverSettings",
    "RetentionSettings",
    "Scope",
    "Settings",
    "ShutdownSettings",
    "SizingRow",
    "TaskSettings",
    "TelemetrySettings",
    "WebhookSettings",
    "check_lease",
    "load_settings",
]
