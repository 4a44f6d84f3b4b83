"""The page in a real browser. SIGHTLINE_SCREENSHOTS=MODEL writes pictures of it, with that model, for the docs."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES
from serve_samples import PHOTOS, index_of, served, tiny_pipeline
from sightline.pipeline import load
from sightline.serve.security import Door

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
MODEL = os.environ.get("SIGHTLINE_SCREENSHOTS", "")
IMAGES = Path(__file__).parents[2] / "docs" / "images"
CAT, COFFEE = EXAMPLES / "cat.jpg", EXAMPLES / "coffee.jpg"
TOKEN = "a-token-of-many-letters"
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def pipeline():
    return load(MODEL) if MODEL else tiny_pipeline()


@pytest.fixture(scope="module")
def server(pipeline, tmp_path_factory):
    with served(pipeline, index=index_of(pipeline, tmp_path_factory.mktemp("index"))) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser, server):
    """Open the page; whatever it complains about, or asks of other hosts, fails the test."""
    complaints, contexts = [], []

    def opened(tab="caption", address=server.address, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda told: _heard(told, complaints))
        page.on("request", lambda asked: _own(asked.url, address, complaints))
        page.goto(f"{address}/#{tab}")
        page.locator("html[data-ready]").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _heard(told, complaints):
    if told.type == "error" and not told.text.startswith("Failed to load resource"):  # a refusal, shown on the page
        complaints.append(told.text)


def _own(url, address, complaints):
    if not url.startswith((address, "blob:")):
        complaints.append(f"a request to {url}")


def caption(page, *photos):
    page.set_input_files("#caption-files", [str(photo) for photo in photos])
    page.locator("#captions .card .said").nth(len(photos) - 1).wait_for()
    return page.locator("#captions .card")


def shot(page, name):
    if MODEL:
        page.wait_for_timeout(400)
        page.screenshot(path=IMAGES / f"page-{name}.png")


def fits(page):
    return page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def contrast(page, selector):
    """WCAG contrast of a text with the nearest background that is painted behind it."""
    colours = page.locator(selector).first.evaluate(
        """(element) => {
          const paper = (node) => {
            const colour = getComputedStyle(node).backgroundColor;
            return /, 0\\)$/.test(colour) && node.parentElement ? paper(node.parentElement) : colour;
          };
          return [getComputedStyle(element).color, paper(element)];
        }"""
    )

    def light(colour):
        parts = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted(map(light, colours))
    return (high + 0.05) / (low + 0.05)


def test_photos_become_captions_that_can_be_copied_and_downloaded(visit, pipeline):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    cards = caption(page, CAT, COFFEE)
    said = [pipeline.caption(path).text for path in (CAT, COFFEE)]
    for i, text in enumerate(said):
        assert cards.nth(i).locator("img").get_attribute("alt") == text
        assert cards.nth(i).locator(".said").inner_text() == text
    assert page.locator("#caption-count").inner_text() == "2 captions"
    assert page.locator("#status").inner_text().split(": ")[1] in said
    cards.nth(0).get_by_role("button", name="Copy alt text").click()
    page.get_by_text("Copied", exact=True).first.wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == said[0]
    with page.expect_download() as coming:
        page.click("#caption-json")
    assert [one["caption"] for one in json.loads(coming.value.path().read_text())] == said
    with page.expect_download() as coming:
        page.click("#caption-csv")
    rows = coming.value.path().read_text(encoding="utf-8-sig").splitlines()
    assert rows[0] == "file,caption,confidence"
    assert rows[1].startswith(f"cat.jpg,{said[0]},")
    page.click("#caption-clear")
    assert cards.count() == 0
    assert page.locator("#caption-bar").is_hidden()


def test_a_word_lights_its_box_and_attention_and_a_box_lights_its_words(visit, pipeline):
    page = visit()
    card = caption(page, CAT).first
    word = card.locator(".said button").first
    word.hover()
    assert card.locator(".box.lit").count() == 1
    assert card.locator("canvas.lit").count() == 1
    assert word.inner_text() in card.locator(".tell").inner_text()
    told = pipeline.caption(CAT).to_json()
    wanted = next(one["box"] for one in told["words"] if one["box"])
    frame, box = card.locator("img").bounding_box(), card.locator(".box.lit").bounding_box()
    scale = frame["width"] / told["size"][0]
    assert box["x"] - frame["x"] == pytest.approx(wanted[0] * scale, abs=2)
    assert box["width"] == pytest.approx((wanted[2] - wanted[0]) * scale, abs=3)
    card.locator(".said button").last.hover()
    shot(page, "caption")
    page.mouse.move(2, 2)
    assert card.locator(".lit").count() == 0
    box = card.locator(".box:not(.extra)").last.bounding_box()  # the smallest lies on top
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert card.locator(".said button.lit").count() >= 1


def test_everything_is_reached_with_the_keyboard(visit):
    page = visit()
    caption(page, CAT)
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.locator("#tab-caption").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#panel-search").is_visible()
    assert page.evaluate("() => document.activeElement.id") == "tab-search"
    page.keyboard.press("ArrowLeft")
    words = page.locator(".card .said button")
    words.first.focus()
    assert page.locator(".box.lit").count() == 1
    page.keyboard.press("ArrowRight")
    assert words.nth(1 % words.count()).evaluate("(word) => word === document.activeElement")
    assert [words.nth(i).get_attribute("tabindex") for i in range(words.count())].count("0") == 1
    outline = words.first.evaluate("(word) => getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Escape")
    assert page.locator(".lit").count() == 0


def test_names_for_screen_readers_are_there(visit):
    page = visit()
    caption(page, CAT)
    assert page.locator("main").count() == 1
    assert page.locator("[role=status][aria-live=polite]").count() == 1
    assert page.get_by_role("tab", name="Audit").count() == 1
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, img, [role=group]")]
          .filter((one) => one.offsetParent)
          .filter((one) => !(one.ariaLabel || one.innerText || one.labels?.length || one.hasAttribute("alt")))
          .map((one) => one.outerHTML)"""
    )
    assert nameless == []


def test_a_file_that_is_no_photo_is_told_and_can_be_tried_again(visit, tmp_path):
    page = visit()
    (tmp_path / "notes.jpg").write_text("milk, bread")
    page.set_input_files("#caption-files", [str(tmp_path / "notes.jpg")])
    card = page.locator(".card")
    card.locator(".failed").wait_for()
    assert "not a picture" in card.locator(".failed").inner_text()
    assert card.get_by_role("button", name="Try again").count() == 1
    assert page.locator("#caption-json").is_disabled()


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_photos_may_be_dropped_or_pasted(visit, way):
    page = visit()
    given = base64.b64encode(CAT.read_bytes()).decode()
    page.evaluate(
        """([way, given]) => {
          const carried = new DataTransfer();
          const bytes = Uint8Array.from(atob(given), (letter) => letter.charCodeAt(0));
          carried.items.add(new File([bytes], "cat.jpg", { type: "image/jpeg" }));
          const event = way === "drop"
            ? new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true })
            : new ClipboardEvent("paste", { clipboardData: carried, bubbles: true });
          document.body.dispatchEvent(event);
        }""",
        [way, given],
    )
    page.locator(".card .said").wait_for()
    assert page.locator(".card .name").inner_text() == "cat.jpg"


def test_search_by_words_and_by_photo_shows_why(visit, server, pipeline):
    page = visit("search")
    asked = "a man in a red jacket" if MODEL else "a dog on the table"
    page.fill("#search-text", asked)
    page.keyboard.press("Enter")
    page.locator(".hit .seen").nth(len(PHOTOS) - 1).wait_for()
    first = server.service.index.search(pipeline, asked, count=1)[0]
    hit = page.locator(".hit").first
    assert hit.locator(".said").inner_text() == first.caption
    hit.locator(".seen button").first.hover()
    assert hit.locator(".box.lit").count() == 1
    shot(page, "search")
    with page.expect_download() as coming:
        page.click("#search-json")
    assert json.loads(coming.value.path().read_text())[0]["path"] == Path(first.path).name  # below the indexed folder
    page.set_input_files("#search-file", str(CAT))
    page.locator("#search-asked figcaption:not(:empty)").wait_for()
    page.locator(".hit img").first.wait_for()
    assert "cat.jpg" in page.locator(".hit").first.inner_text()


def test_without_an_index_the_page_says_how_to_make_one(visit, pipeline):
    with served(pipeline) as running:
        page = visit("search", running.address)
        assert "sightline index" in page.locator("#panel-search .empty").inner_text()


def test_a_captions_file_is_audited(visit, tmp_path):
    page = visit("audit")
    (tmp_path / "mine.csv").write_text("file,caption\ncat.jpg,A dog on a table.\ncoffee.jpg,A cup on a table.\n")
    page.click("#audit-go")
    assert "No captions file" in page.locator("#problem").inner_text()
    page.set_input_files("#audit-captions", str(tmp_path / "mine.csv"))
    page.set_input_files("#audit-photos", [str(path) for path in (CAT, COFFEE, EXAMPLES / "rocket.jpg")])
    page.click("#audit-go")
    cards = page.locator("#audits .card")
    cards.nth(1).wait_for()
    assert cards.first.locator(".said").inner_text() == "A dog on a table."
    assert "not supported" in page.locator("#audit-count").inner_text()
    page.locator("#problem:not([hidden])").wait_for()
    assert "rocket.jpg has no caption" in page.locator("#problem").inner_text()
    cards.first.locator(".said button").first.hover()
    assert "support" in cards.first.locator(".tell").inner_text()
    with page.expect_download() as coming:
        page.click("#audit-json")
    told = json.loads(coming.value.path().read_text())
    flagged = [audit["flagged"] for audit in told]
    assert [cards.nth(i).locator(".flag").count() for i in range(2)] == flagged
    page.check("#audit-only")
    assert page.locator("#audits .card:visible").count() == sum(count > 0 for count in flagged)
    page.uncheck("#audit-only")
    if MODEL:
        page.locator("#audit-form").scroll_into_view_if_needed()
        shot(page, "audit")


def test_dark_follows_the_system_and_the_button_and_is_remembered(visit):
    page = visit(color_scheme="dark")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    caption(page, CAT)
    for selector in (".lead", ".said", ".tabs [aria-selected=true]", ".name", ".drop-main"):
        assert contrast(page, selector) >= 4.5, selector
    shot(page, "dark")
    page.get_by_role("button", name="Dark theme").click()
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.reload()
    page.locator("html[data-ready]").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "light"
    caption(page, CAT)
    for selector in (".lead", ".said", ".tabs [aria-selected=true]", ".name", ".drop-main"):
        assert contrast(page, selector) >= 4.5, selector


def test_a_phone_shows_everything_without_scrolling_sideways(visit):
    page = visit(viewport={"width": 360, "height": 740}, device_scale_factor=2, has_touch=True)
    card = caption(page, CAT).first
    assert fits(page)
    card.locator(".said button").first.tap()
    assert card.locator(".box.lit").count() == 1
    card.scroll_into_view_if_needed()
    shot(page, "phone")
    for tab in ("search", "audit"):
        page.click(f"#tab-{tab}")
        assert fits(page)
    page.goto(page.url.partition("#")[0] + "docs")
    page.locator("html[data-ready]").wait_for()
    assert page.locator(".operation").count() >= 7
    assert fits(page)


def test_motion_is_left_out_where_it_is_not_wanted(visit):
    page = visit(reduced_motion="reduce")
    assert page.locator(".drop").first.evaluate("(drop) => getComputedStyle(drop).transitionDuration") == "0s"


def test_the_page_asks_for_a_token_where_there_is_one(visit, browser, pipeline):
    with served(pipeline, door=Door("127.0.0.1", TOKEN)) as running:
        context = browser.new_context()
        page = context.new_page()
        page.goto(running.address)
        page.fill("#token-value", TOKEN)
        page.keyboard.press("Enter")
        page.locator("html[data-ready]").wait_for()
        caption(page, CAT)
        assert page.locator(".card .said").count() == 1
        context.close()


def test_the_page_takes_the_token_from_its_address_and_hides_it(visit, browser, pipeline):
    with served(pipeline, door=Door("127.0.0.1", TOKEN)) as running:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{running.address}/?token={TOKEN}#audit")
        page.locator("html[data-ready]").wait_for()
        assert page.url == f"{running.address}/#audit"
        page.reload()  # the tab remembers it
        page.locator("html[data-ready]").wait_for()
        assert page.locator("#token").is_hidden()
        context.close()
