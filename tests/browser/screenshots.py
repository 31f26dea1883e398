"""Takes the pictures of docs/page.md: `make screenshots`. Look at them afterwards."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import MISSING, chromium
from tests.browser.conftest import FLAGS, visiting
from tests.faults.pairs import SecretVolume, TestAuthority
from tests.faults.service import serving

IMAGES = Path(__file__).parents[2] / "docs/images"
HOPELESS = "#model=llama-3-70b&gpu=A10&nodes=1"
STAGES = "#model=llama-3-405b&gpu=H100-SXM5-80GB&nodes=32&framework=megatron&pin.pp=8"
WIDTH = 1280
COLOURS = 256


def as_it_is(page: Page) -> None:
    """The page at its top."""
    page.evaluate("window.scrollTo(0, 0)")


def compared(page: Page) -> None:
    """The leanest layout of the front chosen, and the difference in view."""
    page.get_by_role("button", name=re.compile("^Compare .*TP")).last.click()
    page.wait_for_load_state("networkidle")
    page.locator("#compare").evaluate("card => card.scrollIntoView({block: 'start'})")


def priced(page: Page) -> None:
    """Every machine compared."""
    page.locator("#cost button").click()
    page.locator("#cost canvas").wait_for(timeout=60_000)
    page.locator("#cost").evaluate("card => card.scrollIntoView({block: 'start'})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What one picture shows. `last` is what the page draws last."""

    name: str
    link: str = ""
    height: int
    width: int = WIDTH
    prepare: Callable[[Page], None] = as_it_is
    last: str = "#cost h2"
    settings: Mapping[str, Any] = field(default_factory=dict)


PICTURES = (
    Picture(name="plan", height=1900),
    Picture(name="candidates", height=1300, prepare=compared),
    Picture(name="cost", height=1100, prepare=priced),
    Picture(name="miss", link=HOPELESS, height=820, last="#refusal h2"),
    Picture(name="dark", link=STAGES, height=1500, settings={"color_scheme": "dark"}),
    Picture(name="phone", height=1400, width=375),
)


def small(picture: bytes) -> bytes:
    """The same in a palette: a third of the bytes."""
    out = io.BytesIO()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> int:
    """Take every picture, or those named; the exit code."""
    program = chromium()
    if program is None:
        print(MISSING, file=sys.stderr)  # noqa: T201 - a script
        return 1
    chosen = [one for one in PICTURES if one.name in sys.argv[1:] or not sys.argv[1:]]
    authority = TestAuthority()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        volume = SecretVolume(Path(folder) / "tls")
        volume.write(authority.pair())
        running = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        with serving(volume.folder, authority) as service:
            for one in chosen:
                size = {"width": one.width, "height": one.height}
                with visiting(running, service.url, viewport=size, **one.settings) as visit:
                    page = visit.open(one.link)
                    page.locator(one.last).wait_for()
                    one.prepare(page)
                    page.wait_for_timeout(300)
                    (IMAGES / f"page-{one.name}.png").write_bytes(small(page.screenshot()))
        running.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
