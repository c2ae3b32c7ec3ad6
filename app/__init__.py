"""An orders service that talks to slow, flaky systems and never loses an order."""

VERSION = "0.1.0"
