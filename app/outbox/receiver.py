"""What all receivers of events have in common: a policy of their own, so that an outage there parks nothing."""

from app.observability import metrics
from app.observability.report import report
from app.resilience import Policy, PolicySettings
from app.settings import EventSettings, ReceiverSettings


def receiver_policy(name: str, settings: EventSettings, receiver: ReceiverSettings) -> Policy:
    """The policy around each publication, with its metrics; its breaker opens when the receiver is down."""
    policy = Policy(
        name,
        PolicySettings(
            max_concurrent=settings.concurrency,
            connect_timeout=receiver.connect_timeout,
            read_timeout=receiver.read_timeout,
            total_timeout=settings.publish_timeout,
            breaker=receiver.breaker,
        ),
        report=report,
    )
    metrics.watch(policy)
    return policy
