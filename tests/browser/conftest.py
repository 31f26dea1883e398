"""A real service process and a real Chromium; without one skipped, or failed in CI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import MISSING, chromium, must_run
from tests.faults.pairs import SecretVolume, TestAuthority
from tests.faults.service import serving

HERE = Path(__file__).parent
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DESKTOP = {"width": 1440, "height": 1000}
ANSWER_MILLISECONDS = 20_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything in this folder `browser`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@dataclass(slots=True, kw_only=True)
class Visit:
    """A page, and what went wrong or left the origin while it was open."""

    page: Page
    origin: str
    complaints: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def open(self, link: str = "") -> Page:
        """The page at this link, with every answer shown."""
        self.page.goto(f"{self.origin}/{link}")
        return self.settled()

    def settled(self) -> Page:
        """The page once it has nothing left to ask."""
        self.page.wait_for_timeout(400)  # longer than the pause before an edit is sent
        self.page.wait_for_load_state("networkidle", timeout=ANSWER_MILLISECONDS)
        return self.page


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a service runs."""
    authority = TestAuthority()
    volume = SecretVolume(tmp_path_factory.mktemp("page") / "tls")
    volume.write(authority.pair())
    with serving(volume.folder, authority) as service:
        yield service.url


@pytest.fixture(scope="session")
def program() -> str:
    """The browser to start."""
    found = chromium()
    if found is None:
        refuse = pytest.fail if must_run() else pytest.skip
        refuse(MISSING)
    return found


@pytest.fixture(scope="module")
def browser(program: str) -> Iterator[Browser]:
    """One browser for the visits of a module; its event loop must not outlive them."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield running
        running.close()


Visiting = Callable[..., Visit]


@contextmanager
def visiting(browser: Browser, origin: str, **settings: Any) -> Iterator[Visit]:
    """A fresh visit; at its end nothing may have failed or been asked elsewhere."""
    # The certificate of a test authority is no browser's to know.
    chosen = {"viewport": DESKTOP, "ignore_https_errors": True, "locale": "en-US", **settings}
    context = browser.new_context(**chosen)
    visit = Visit(page=context.new_page(), origin=origin)
    page = visit.page
    page.set_default_timeout(ANSWER_MILLISECONDS)
    page.on("console", lambda line: _note(visit, line.type, line.text))
    page.on("pageerror", lambda problem: visit.complaints.append(str(problem)))
    page.on("request", lambda request: _follow(visit, request.url))
    yield visit
    context.close()
    assert visit.complaints == []
    assert visit.strangers == []


def _note(visit: Visit, kind: str, text: str) -> None:
    # Chromium reports every status 4xx as an error; a refused question is an answer of ours.
    refused = "status of 422" in text
    if kind in ("error", "warning") and not refused:
        visit.complaints.append(text)


def _follow(visit: Visit, url: str) -> None:
    if not url.startswith((visit.origin, "data:", "blob:")):
        visit.strangers.append(url)


@pytest.fixture
def visit(browser: Browser, origin: str) -> Iterator[Visit]:
    """A reader at a desk, by day."""
    with visiting(browser, origin) as opened:
        yield opened
