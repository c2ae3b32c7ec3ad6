"""The pages that the `type` of a problem leads to."""

import re

import pytest

from app.api.kinds import Kind
from tests.service import Service


async def test_every_kind_has_its_page(service: Service, subtests: pytest.Subtests) -> None:
    """A person finds there what it means, what to do and whether to repeat the request, without any script."""
    for kind in Kind:
        with subtests.test(kind=kind.slug):
            page = await service.client.get(f"/problems/{kind.slug}")
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert f"{kind.status.value} {kind.status.phrase}" in page.text
            for text in (kind.title, kind.meaning, kind.cure, kind.repeat):
                assert text.replace("'", "&#x27;") in page.text
            assert "<script" not in page.text
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert page.headers["x-content-type-options"] == "nosniff"


async def test_a_problem_leads_to_its_page(service: Service) -> None:
    """The type of a problem as it is answered is the address of its page."""
    problem = (await service.client.get("/orders/1")).json()
    page = await service.client.get(problem["type"])
    assert f"<h1>{problem['title']}</h1>" in page.text


async def test_all_kinds_are_listed(service: Service) -> None:
    """/problems links to every page, and each page back; nothing is loaded from elsewhere."""
    listed = await service.client.get("/problems")
    links = re.findall(r'href="(problems/[^"]+)"', listed.text)
    assert links == [f"problems/{kind.slug}" for kind in Kind]
    for link in links:
        page = await service.client.get(f"/{link}")
        assert 'href="../problems"' in page.text
        assert "http" not in page.text.replace("HTTP", "")
    assert "color-scheme: light dark" in listed.text


async def test_an_unknown_kind_is_a_problem_itself(service: Service, subtests: pytest.Subtests) -> None:
    """404 as a problem, whose own page exists."""
    for slug in ("nothing", "%3Cscript%3E", "NOT-FOUND"):
        with subtests.test(slug=slug):
            answer = await service.client.get(f"/problems/{slug}")
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
            assert answer.json()["type"] == "/problems/not-found"
