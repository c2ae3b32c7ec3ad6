"""The headers of every page: it may load and do what it needs, and nothing else."""

import re
from base64 import b64encode
from hashlib import sha256


def guards(html: str, *, styles: str | None = None, workers: str = "'none'") -> dict[str, str]:
    """Let in what comes from here and the blocks that stand in the page, and let no other page frame it.

    `styles` and `workers` are sources for a page that needs others.
    """
    styles = styles or _hashes("style", html)
    rules = (
        "default-src 'none'",
        f"script-src 'self' {_hashes('script', html)}",
        f"style-src 'self' {styles}",
        "img-src 'self' data:",
        "connect-src 'self'",
        f"worker-src {workers}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(rule.strip() for rule in rules),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }


def _hashes(tag: str, html: str) -> str:
    blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(block.encode()).digest()).decode()}'" for block in blocks)
