"""What the JSON of the API is made of: one configuration, and the types that several bodies share."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

LONGEST_TEXT = 2000
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+$"
"""Text on one line, without control characters and those that turn the direction of what stands around them."""


class Wire(BaseModel):
    """What comes in: unknown fields are refused, since they are usually misspelt ones."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)


class View(Wire):
    """What goes out: a later version may say more."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)


def told(**keywords: Any) -> Any:
    """Keywords of JSON Schema that are true of what we send by where it comes from: a client may rely on them.

    They are not checked again on the way out: a limit that is broken after all is no reason to hide an order.
    """
    return Field(json_schema_extra=keywords)


def _whole(number: Any) -> Any:
    """JSON has one kind of number: 2.0 is as whole as 2, says JSON Schema."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _digits(number: Any) -> Any:
    """Python would take `+2`, `1_0` and `1.0` for numbers, too."""
    if isinstance(number, str) and re.fullmatch("[0-9]+", number) is None:
        raise ValueError("must be written in digits only")
    return number


WHOLE = BeforeValidator(_whole)
DIGITS = BeforeValidator(_digits)
"""For a number that comes as text: in a path, a query or a header."""

CustomerId = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=PRINTABLE)]
Int64 = Annotated[int, Field(ge=1, le=2**63 - 1), told(format="int64"), DIGITS]
Count = Annotated[int, told(format="int32", minimum=0, maximum=2**31 - 1)]
Seconds = Annotated[float, told(minimum=0)]
Share = Annotated[float, told(minimum=0, maximum=1)]
Name = Annotated[str, told(minLength=1, maxLength=63, pattern="^[A-Za-z0-9_-]+$")]
Text = Annotated[str, told(maxLength=LONGEST_TEXT)]
Address = Annotated[str, told(minLength=1, maxLength=2000, format="uri-reference")]
Links = Annotated[dict[str, Address], told(maxProperties=10)]
