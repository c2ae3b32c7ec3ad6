"""Pages of other sites, which act through the browser of whoever reaches this service: nothing is done for them."""

from functools import lru_cache
from urllib.parse import urlsplit

from fastapi import Request

from app.api.body import media_type_of, wrong_type
from app.api.kinds import Kind
from app.api.problems import ProblemError
from app.settings import ApiSettings
from app.settings.api import is_loopback

SAFE = {"GET", "HEAD", "OPTIONS"}
"""Methods that change nothing; what they answer, a browser shows to no page of another site."""

FORMS = {"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}
"""What a form sends, and no client of this service."""

DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def refuse_other_sites(request: Request, api: ApiSettings) -> None:
    """Raise a 403, 415 or 421 problem for what a page of another site may have made a browser send.

    Only where no key is asked for: with keys such a page has none to send. Programs send neither `Origin` nor
    `Sec-Fetch-Site`. A page whose name was given an address of this machine (DNS rebinding) could even read answers,
    so a service on loopback wants to be called by a name that it knows.
    """
    headers, url = request.headers, api.public_url
    host = headers.get("host", "").lower()
    if host and api.loopback and not (_on_loopback(host) or _is_host_of(url, host)):
        detail = "The Host header names neither a loopback address nor the host of api.public_url."
        raise ProblemError(Kind.MISDIRECTED, detail)
    if request.method in SAFE:
        return
    if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        raise _other_site("the browser says so (Sec-Fetch-Site)")
    if (origin := headers.get("origin")) is not None and not _is_own(origin, host, url):
        raise _other_site("its Origin is neither api.public_url nor the address that was asked")
    if media_type_of(request) in FORMS:
        raise wrong_type(media_type_of(request))


def _is_own(origin: str, host: str, public_url: str | None) -> bool:
    """Whether the page is from `public_url`, or else from where the request went: a TLS of that name ends in front."""
    if public_url is not None and origin == _origin_of(public_url):
        return True
    trusted = public_url is None or _on_loopback(host)
    return trusted and host != "" and origin in {f"http://{host}", f"https://{host}"}


def _is_host_of(public_url: str | None, host: str) -> bool:
    return public_url is not None and _hostname(_origin_of(public_url).partition("//")[2]) == _hostname(host)


def _origin_of(url: str) -> str:
    """As a browser writes it: without the path, and without a port that goes without saying."""
    parts = urlsplit(url.lower())
    return f"{parts.scheme}://{parts.netloc.removesuffix(DEFAULT_PORTS[parts.scheme])}"


@lru_cache(maxsize=256)
def _on_loopback(host: str) -> bool:
    name = _hostname(host)
    return is_loopback(name) or name.endswith(".localhost")


def _hostname(host: str) -> str:
    """The name or address in a Host header, "" where there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _other_site(because: str) -> ProblemError:
    return ProblemError(Kind.OTHER_SITE, f"This may come from another site's page: {because}.")
