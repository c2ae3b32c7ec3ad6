"""An event as consumers get it: CloudEvents 1.0 in structured JSON, the same bytes for every way it is sent."""

import json
from datetime import UTC

from app.outbox.store import StoredEvent

MEDIA_TYPE = "application/cloudevents+json"


def encode(event: StoredEvent, source: str) -> bytes:
    """The CloudEvent of an order's event; `source` names this service.

    `sequence` counts the events of the `subject`, which is the order, from 1. The extension wants it to sort as text.
    """
    attributes = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": source,
        "type": event.type,
        "subject": str(event.order_id),
        "time": event.occurred_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "sequence": f"{event.sequence:010}",
        **({"traceparent": event.traceparent} if event.traceparent else {}),
        "datacontenttype": "application/json",
        "data": json.loads(event.data),
    }
    return json.dumps(attributes, ensure_ascii=False, separators=(",", ":")).encode()
