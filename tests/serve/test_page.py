"""The page in a real browser. SIGHTLINE_SCREENSHOTS=MODEL writes pictures of it, with that model, for the docs."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from serve_samples import PHOTOS, index_of, served, tiny_pipeline, waited_for
from sightline.pipeline import Pipeline, load
from sightline.serve import service
from sightline.serve.limits import Limits
from sightline.serve.middleware import Access

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
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

    def opened(tab="caption", address=server.address, query="", ready=True, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda told: _heard(told, complaints))
        page.on("request", lambda asked: _own(asked.url, address, complaints))
        page.goto(f"{address}/{query}#{tab}")
        if ready:
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


def give(page, photos, count=None):
    """Give the page photos, and wait for so many captions."""
    page.set_input_files("#caption-files", [str(photo) for photo in photos])
    page.locator("#captions [data-state=done]").nth((count or len(photos)) - 1).wait_for()


def caption(page, *photos):
    give(page, photos)
    return page.locator("#captions > li")


def copies(folder, count):
    """So many photos of different names."""
    folder.mkdir(exist_ok=True)
    made = [folder / f"{i:03}.jpg" for i in range(count)]
    for i, path in enumerate(made):
        shutil.copy(PHOTOS[i % len(PHOTOS)], path)
    return made


def shown(pipeline, path):
    """A caption as the page shows it: a sentence."""
    text = pipeline.caption(path).text
    return f"{text[0].upper()}{text[1:]}."


def shot(page, name):
    if MODEL:
        page.wait_for_timeout(400)
        page.screenshot(path=IMAGES / f"page-{name}.png")


def fits(page):
    return page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_no_full_stop_begins_a_line(visit):
    """At every width, in a sentence whose last word points at a box."""
    page = visit()
    lines = page.evaluate("""async () => {
      const { sentenceOf } = await import("/photo.js");
      const photo = { place: () => ({ words: [] }), light: () => {} };
      const words = ["a", "man", "in", "a"].map((word) => ({ word, box: null }));
      words.push({ word: "field", box: [0, 0, 1, 1] });
      const said = sentenceOf(photo, words, document.createElement("p"));
      document.body.append(said);
      const apart = [], word = said.querySelector("button"), stop = document.createRange();
      stop.selectNodeContents(word.nextSibling);
      for (let width = 60; width < 400; width += 2) {
        said.style.width = `${width}px`;
        if (stop.getBoundingClientRect().top > word.getBoundingClientRect().bottom) apart.push(width);
      }
      return [said.textContent, apart];
    }""")
    assert lines == ["A man in a field.", []]


def clipboard(page):
    return page.evaluate("() => navigator.clipboard.readText()")


def focused(page):
    return page.evaluate("() => document.activeElement.id || document.activeElement.innerText")


@contextlib.contextmanager
def held(running):
    """The model does something else until the end of the `with`."""
    release = threading.Event()
    running.service.worker.submit("held", lambda items: [release.wait(30) for _ in items], [None])
    try:
        yield
    finally:
        release.set()


COPYING = {"permissions": ["clipboard-read", "clipboard-write"]}


# Captions


def test_photos_become_captions_that_can_be_copied_and_downloaded(visit, pipeline):
    page = visit(**COPYING)
    cards = caption(page, CAT, COFFEE)
    said = [shown(pipeline, path) for path in (CAT, COFFEE)]
    for i, text in enumerate(said):
        assert cards.nth(i).locator("img").get_attribute("alt") == text
        assert cards.nth(i).locator(".said").inner_text() == text
    assert page.locator("#caption-count").inner_text() == "2 captions"
    assert page.locator("#status").inner_text().split(": ")[1] in said
    cards.nth(0).get_by_role("button", name="Copy alt text").click()
    page.get_by_text("Copied", exact=True).first.wait_for()
    assert clipboard(page) == said[0]
    with page.expect_download() as coming:
        page.click("#caption-json")
    assert [one["caption"] for one in json.loads(coming.value.path().read_text())] == said
    with page.expect_download() as coming:
        page.click("#caption-csv")
    rows = coming.value.path().read_text(encoding="utf-8-sig").splitlines()
    assert rows[0] == "file,caption,confidence"
    assert rows[1].startswith(f"cat.jpg,{said[0]},")


def test_copied_alt_text_is_a_sentence_and_copy_all_copies_every_one(visit, pipeline):
    page = visit(**COPYING)
    caption(page, CAT, COFFEE)
    page.click("#caption-copy")
    page.locator("#caption-copy", has_text="Copied").wait_for()
    lines = clipboard(page).splitlines()
    assert lines == [f"cat.jpg\t{shown(pipeline, CAT)}", f"coffee.jpg\t{shown(pipeline, COFFEE)}"]
    assert all(line.partition("\t")[2][0].isupper() and line.endswith(".") for line in lines)


def test_a_word_lights_its_box_and_attention_and_a_box_lights_its_words(visit, pipeline):
    page = visit()
    card = caption(page, CAT).first
    word = card.locator(".said button").first
    word.hover()
    assert card.locator(".box.lit").count() == 1
    assert card.locator("canvas.lit").count() == 1
    assert word.inner_text().lower() in card.locator(".tell").inner_text()
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


def test_the_heat_map_has_a_perceptual_scale_a_legend_and_a_switch_that_is_remembered(visit):
    page = visit()
    card = caption(page, CAT).first
    card.locator(".said button").first.hover()
    colours = card.locator("canvas").evaluate(
        """(canvas) => { const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return Array.from({ length: data.length / 4 }, (_, i) => [...data.slice(4 * i, 4 * i + 3)]); }"""
    )
    attention = next(
        word["attention"]
        for word in page.request.post(
            page.url.partition("#")[0] + "v1/caption",
            multipart={
                "photos": {"name": "cat.jpg", "mimeType": "image/jpeg", "buffer": CAT.read_bytes()},
                "attention": "true",
            },
        ).json()["captions"][0]["words"]
        if word["box"]
    )
    shares = [share for row in attention for share in row]
    # Viridis grows lighter all the way: the more a place was looked at, the lighter it is.
    light = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in colours]
    order = sorted(range(len(shares)), key=lambda i: shares[i])
    assert all(light[a] <= light[b] + 1 for a, b in itertools.pairwise(order))
    assert colours[order[-1]] == pytest.approx([253, 231, 37], abs=2)
    assert card.locator(".legend .scale").get_attribute("aria-label").startswith("Colours: dark violet")
    card.get_by_label("Show where the model looked").uncheck()
    card.locator(".said button").first.hover()
    assert card.locator("canvas.lit").count() == 0
    assert card.locator(".box.lit").count() == 1
    page.reload()
    page.locator("html[data-ready]").wait_for()
    card = caption(page, CAT).first
    assert not card.get_by_label("Show where the model looked").is_checked()


def test_an_example_can_be_tried(visit):
    page = visit()
    page.get_by_role("button", name="Try an example").click()
    page.locator("#captions [data-state=done]").wait_for()
    assert page.locator("#captions .name").inner_text() == "example.jpg"


def test_length_words_beam_and_what_captions_must_say_can_be_chosen(visit, server, monkeypatch):
    asks, rules = [], service._rules
    monkeypatch.setattr(service, "_rules", lambda ask, says: asks.append(ask) or rules(ask, says))
    page = visit()
    page.get_by_text("How captions should be").click()
    page.select_option("#caption-length", "long")
    page.fill("#caption-include", "red dog")
    page.select_option("#caption-beam", "5")
    card = caption(page, CAT).first
    assert (asks[0].length, asks[0].must_include, asks[0].beam) == ("long", ["red dog"], 5)
    if not MODEL:
        assert "red dog" in card.locator(".said").inner_text().lower()
    page.fill("#caption-words", "5")
    page.fill("#caption-include", "")
    page.click("#caption-clear")
    card = caption(page, CAT).first
    assert len(card.locator(".said").inner_text().split()) <= 5


def test_what_no_caption_can_say_is_told_once_under_the_form_and_the_photos_stay(visit):
    page = visit()
    page.get_by_text("How captions should be").click()
    page.select_option("#caption-beam", "1")
    page.fill("#caption-include", "dog")
    page.set_input_files("#caption-files", [str(CAT)])
    page.locator("#caption-notice:not([hidden])").wait_for()
    said = page.locator("#caption-notice").inner_text()
    assert said.startswith("The words that every caption must have can only be kept with a beam, which looks ahead. ")
    page.locator("#captions [data-state=stopped]").wait_for()
    page.click("#caption-clear")
    page.select_option("#caption-beam", "3")
    page.fill("#caption-include", "xyzzyx")
    page.set_input_files("#caption-files", [str(CAT), str(COFFEE)])
    page.locator("#caption-notice:not([hidden])").wait_for()
    assert "does not know the word 'xyzzyx'" in page.locator("#caption-notice").inner_text()
    page.locator("#captions [data-state=stopped]").nth(1).wait_for()
    page.fill("#caption-include", "")
    page.click("#caption-more")
    page.locator("#captions [data-state=done]").nth(1).wait_for()


def test_a_caption_can_be_edited_before_it_is_copied_or_downloaded(visit):
    page = visit(**COPYING)
    card = caption(page, CAT).first
    card.get_by_role("button", name="Edit").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("two dogs, on a table")
    page.keyboard.press("Enter")
    card.locator(".said", has_text="Two dogs, on a table.").wait_for()
    card.get_by_role("button", name="Copy alt text").click()
    page.get_by_text("Copied", exact=True).first.wait_for()
    assert clipboard(page) == "Two dogs, on a table."
    assert card.locator(".said button").count() >= 1  # its words are looked for anew
    with page.expect_download() as coming:
        page.click("#caption-json")
    told = json.loads(coming.value.path().read_text())[0]
    assert (told["caption"], told["edited"]) == ("Two dogs, on a table.", True)
    assert "dogs" in [word["word"] for word in told["words"]]


def test_other_wordings_are_offered_and_one_can_be_taken(visit, pipeline):
    page = visit()
    card = caption(page, CAT).first
    card.get_by_role("button", name="Other wordings").click()
    card.locator(".others li").first.wait_for()
    texts = card.locator(".others button").all_inner_texts()
    assert shown(pipeline, CAT) not in texts
    assert len(texts) == len(set(texts)) >= 2
    card.locator(".others button").first.click()
    card.locator(".said", has_text=texts[0]).wait_for()


def test_a_typed_sentence_is_found_in_a_photo(visit, pipeline):
    page = visit()
    card = caption(page, CAT).first
    card.get_by_role("button", name="Find words").click()
    page.keyboard.type("123")
    page.keyboard.press("Enter")
    assert card.locator(".drawer .failed").inner_text() == "Type at least one word."
    page.keyboard.press("Control+A")
    page.keyboard.type("a dog on the table")
    page.keyboard.press("Enter")
    card.locator(".drawer .said").wait_for()
    assert card.locator(".box.lit").count() >= 1
    found = [word["word"] for word in pipeline.ground(CAT, "a dog on the table").to_json()["words"] if word["box"]]
    assert card.locator(".drawer .said button").all_inner_texts() == found


def test_one_card_can_be_removed_and_clear_undone(visit):
    page = visit()
    cards = caption(page, CAT, COFFEE)
    cards.first.get_by_role("button", name="Remove").click()
    assert [card.inner_text() for card in cards.locator(".name").all()] == ["coffee.jpg"]
    page.locator("#foot").get_by_role("button", name="Undo").click()
    assert cards.count() == 2
    page.click("#caption-clear")
    assert cards.count() == 0
    assert page.locator("#caption-bar").is_hidden()
    assert page.locator("#foot-text").inner_text() == "2 photos cleared"
    page.locator("#foot").get_by_role("button", name="Undo").click()
    assert [card.inner_text() for card in cards.locator(".name").all()] == ["cat.jpg", "coffee.jpg"]
    assert page.locator("#foot").is_hidden()


# A hundred photos


def test_many_photos_are_a_compact_grid_whose_photos_open_large(visit, tmp_path):
    page = visit()
    give(page, copies(tmp_path / "many", 12))
    assert page.locator("#captions").get_attribute("class") == "tiles"
    assert page.locator("#captions .said").count() == 12
    tile = page.locator("#captions .open").nth(3)
    tile.click()
    assert page.locator("#viewer-at").inner_text() == "4 of 12"
    assert page.locator("#viewer .name").first.inner_text() == "003.jpg"
    page.locator("#viewer .said button").first.hover()
    assert page.locator("#viewer .box.lit").count() == 1
    shot(page, "viewer")
    page.click("#viewer-next")
    page.keyboard.press("ArrowRight")
    assert page.locator("#viewer .name").first.inner_text() == "005.jpg"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    assert page.locator("#viewer").is_hidden()
    page.wait_for_function("() => document.activeElement.closest('li') === document.querySelectorAll('.tile')[4]")
    page.click("#view-list")
    assert page.locator("#captions").get_attribute("class") == "cards"
    assert page.locator("#captions .card .said").count() == 12
    page.click("#view-grid")
    page.evaluate("() => scrollTo(0, 0)")
    shot(page, "grid")


def test_progress_stays_in_sight_with_a_count_the_time_left_and_cancel(visit, pipeline, tmp_path):
    with served(pipeline, limits=Limits(batch=1)) as running:
        page = visit(address=running.address)
        with held(running):
            page.set_input_files("#caption-files", [str(path) for path in copies(tmp_path / "many", 24)])
            page.locator("#foot-text", has_text="Captioned 0 of 24 photos").wait_for()
            assert waited_for(lambda: running.queue_length > 1)
            page.mouse.wheel(0, 500)
            page.wait_for_timeout(200)
            box = page.locator("#foot").bounding_box()
            assert 0 < box["y"] < 800 - box["height"]  # wherever people have scrolled to
            page.wait_for_timeout(1000)
        page.locator("#foot-text", has_text="left").wait_for()
        said = page.locator("#foot-text").inner_text()
        assert said.startswith("Captioned ")
        assert " s left" in said
        with held(running):
            page.get_by_role("button", name="Cancel").click()
            page.locator("#foot").wait_for(state="hidden")
            assert waited_for(lambda: running.service.worker.reserved == 0)
        stopped = page.locator("#captions [data-state=stopped]").count()
        assert 0 < stopped < 24
        page.get_by_role("button", name=f"Caption the other {stopped}").click()
        page.locator("#captions [data-state=done]").nth(23).wait_for()
        assert page.locator("#caption-count").inner_text() == "24 captions"


def test_a_photo_that_is_shown_large_gets_its_caption_when_it_comes(visit, pipeline, tmp_path):
    with served(pipeline) as running:
        page = visit(address=running.address)
        with held(running):
            page.set_input_files("#caption-files", [str(path) for path in copies(tmp_path / "many", 6)])
            page.locator("#captions .open").nth(2).click()
            assert page.locator("#viewer .wait").count() == 1
        page.locator("#viewer .said").wait_for()
        assert page.locator("#viewer .name").first.inner_text() == "002.jpg"


def test_leaving_the_page_cancels_the_work_on_the_server(visit, pipeline, tmp_path):
    with served(pipeline) as running:
        page = visit(address=running.address)
        with held(running):
            page.set_input_files("#caption-files", [str(path) for path in copies(tmp_path / "many", 20)])
            assert waited_for(lambda: running.queue_length >= 8)
            page.goto("about:blank")
            assert waited_for(lambda: running.queue_length == running.service.worker.reserved == 0)


def test_photos_that_come_while_others_are_worked_on_join_them(visit, pipeline, tmp_path):
    with served(pipeline) as running:
        page = visit(address=running.address)
        photos = copies(tmp_path / "many", 9)
        with held(running):
            page.set_input_files("#caption-files", [str(path) for path in photos[:6]])
            assert waited_for(lambda: running.queue_length > 0)
            page.set_input_files("#caption-files", [str(path) for path in photos[6:]])
        page.locator("#captions [data-state=done]").nth(8).wait_for()
        names = page.locator("#captions img").count()
        assert names == 9


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


@pytest.mark.parametrize("way", ["drop", "choose"])
def test_a_folder_may_be_dropped_or_chosen_with_all_that_is_below_it(visit, tmp_path, way):
    folder = tmp_path / "holiday"
    (folder / "beach").mkdir(parents=True)
    shutil.copy(CAT, folder)
    shutil.copy(COFFEE, folder / "beach")
    (folder / "notes.txt").write_text("milk, bread")
    page = visit()
    if way == "choose":
        page.set_input_files("#caption-folder", str(folder))
    else:
        session = page.context.new_cdp_session(page)
        carried = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": carried})
    page.locator("#captions [data-state=done]").nth(1).wait_for()
    assert sorted(page.locator("#captions .name").all_inner_texts()) == ["cat.jpg", "coffee.jpg"]


def test_two_models_are_compared_side_by_side(visit, pipeline, monkeypatch):
    other = Pipeline(tiny_bundle(seed=8))
    other.bundle.card["name"] = "another"
    with served(pipeline, compare=other) as running:
        page = visit(address=running.address)
        page.get_by_text("How captions should be").click()
        assert page.get_by_label("Compare with another").is_checked()
        card = caption(page, CAT).first
        assert card.locator(".said").all_inner_texts() == [shown(pipeline, CAT), shown(other, CAT)]
        assert card.locator(".name").all_inner_texts() == [
            "cat.jpg",
            running.client.get("/v1/health").json()["model"],
            "another",
        ]
        with page.expect_download() as coming:
            page.click("#caption-csv")
        rows = coming.value.path().read_text(encoding="utf-8-sig").splitlines()
        assert rows[0] == "file,caption,confidence,caption of another"
        assert rows[1].endswith(f",{shown(other, CAT)}")
        page.fill("#caption-include", "cup")
        monkeypatch.delitem(running.service.models, "another")  # what the second cannot do costs none of the first
        page.click("#caption-clear")
        assert caption(page, CAT).first.locator(".said").count() == 1
        assert "there is no model 'another' here" in page.locator("#caption-notice").inner_text()
        page.uncheck("#caption-compare")
        page.click("#caption-clear")
        assert caption(page, CAT).first.locator(".said").count() == 1


# Errors


def test_a_file_that_is_no_photo_is_told_without_a_retry_that_cannot_work(visit, tmp_path):
    page = visit()
    (tmp_path / "notes.jpg").write_text("milk, bread")
    page.set_input_files("#caption-files", [str(tmp_path / "notes.jpg")])
    card = page.locator(".card")
    card.locator(".failed").wait_for()
    assert card.locator(".failed").inner_text().startswith("Notes.jpg: this is text, not a picture.")
    assert card.get_by_role("button").all_inner_texts() == ["Remove"]
    card.locator(".photo.blank").wait_for()
    assert "right" not in card.inner_text()
    assert page.locator("#caption-json").is_disabled()


def test_a_bad_file_among_good_ones_stops_none_of_them(visit, tmp_path):
    page = visit()
    (tmp_path / "notes.jpg").write_text("milk, bread")
    page.set_input_files("#caption-files", [str(path) for path in (CAT, COFFEE, tmp_path / "notes.jpg", *PHOTOS[2:])])
    page.locator("#captions [data-state=done]").nth(len(PHOTOS) - 1).wait_for()
    assert page.locator("#captions [data-state=failed]").count() == 1


def test_what_may_go_well_another_time_can_be_tried_again(visit):
    page = visit()
    page.route("**/v1/caption", lambda route: route.abort())
    page.set_input_files("#caption-files", [str(CAT)])
    page.locator(".card .failed").wait_for()
    assert "The server does not answer. Check that it is running." in page.locator(".card .failed").inner_text()
    page.unroute("**/v1/caption")
    page.get_by_role("button", name="Try again").click()
    page.locator(".card .said").wait_for()


def test_an_error_stands_under_the_form_in_sight_and_stale_hits_go(visit):
    page = visit("search", viewport={"width": 390, "height": 600})
    page.fill("#search-text", "a dog")
    page.keyboard.press("Enter")
    page.locator(".hit img").first.wait_for()
    page.fill("#search-without", "a dog")
    page.keyboard.press("Enter")
    notice = page.locator("#search-notice:not([hidden])")
    notice.wait_for()
    assert notice.inner_text() == "What to find and what not to find mean the same. Change one of them."
    assert page.locator(".hit").count() == 0
    assert page.locator("#search-bar").is_hidden()
    form, box = page.locator("#search-form").bounding_box(), notice.bounding_box()
    assert form["y"] + form["height"] <= box["y"] <= form["y"] + form["height"] + 60
    assert 0 <= box["y"] <= 600 - box["height"]
    page.fill("#search-without", "")
    page.fill("#search-text", "a dog")
    page.keyboard.press("Enter")
    page.locator(".hit img").first.wait_for()
    assert page.locator("#search-notice").is_hidden()


@pytest.mark.parametrize("text", ["", "123", "!?"])
def test_a_question_without_words_is_told_in_words_for_people(visit, text):
    page = visit("search")
    page.fill("#search-text", text)
    page.click("#search-form .main")
    assert page.locator("#search-notice").inner_text() == "Say with at least one word what to find."
    assert page.evaluate("() => document.activeElement.id") == "search-text"
    page.fill("#search-text", "a dog")
    page.fill("#search-without", text or "...")
    page.click("#search-form .main")
    page.locator("#search-notice:not([hidden]), .hit").first.wait_for()
    said = page.locator("#search-notice").inner_text()
    assert said in ("Give at least one word.", "")
    assert "pattern" not in said


def test_an_audit_clears_old_errors_and_old_results(visit, tmp_path):
    page = visit("audit")
    (tmp_path / "bad.csv").write_text("nothing of the kind")
    (tmp_path / "good.csv").write_text("file,caption\ncat.jpg,A dog on a table.\n")
    page.set_input_files("#audit-photos", str(CAT))
    page.set_input_files("#audit-captions", str(tmp_path / "good.csv"))
    page.click("#audit-go")
    page.locator("#audits .card").wait_for()
    page.set_input_files("#audit-captions", str(tmp_path / "bad.csv"))
    page.click("#audit-go")
    page.locator("#audit-notice:not([hidden])").wait_for()
    assert page.locator("#audits .card").count() == 0
    assert page.locator("#audit-bar").is_hidden()
    page.set_input_files("#audit-captions", str(tmp_path / "good.csv"))
    assert page.locator("#audit-notice").is_hidden()
    page.click("#audit-go")
    page.locator("#audits .card").wait_for()
    assert page.locator("#audit-notice").is_hidden()


def test_the_place_of_words_is_promised_only_by_a_model_that_finds_places(visit, pipeline):
    promise = "Words with a dotted line show their place in the photo."
    page = visit()
    assert promise in page.locator("#caption-lead").inner_text()
    assert "every noun" not in page.locator("#panel-caption").inner_text()
    with served(Pipeline(tiny_bundle(matcher=False))) as running:
        assert promise not in visit(address=running.address).locator("#caption-lead").inner_text()


def test_the_page_asks_for_a_token_and_says_when_it_is_wrong(visit, pipeline):
    with served(pipeline, access=Access("127.0.0.1", TOKEN)) as running:
        page = visit(address=running.address, ready=False)
        page.locator("#token-value").wait_for()
        assert page.locator("#token-wrong").is_hidden()
        page.fill("#token-value", "a-wrong-one")
        page.keyboard.press("Enter")
        page.locator("#token-wrong").wait_for()
        assert page.locator("#token-wrong").inner_text().startswith("That token is not right.")
        page.fill("#token-value", TOKEN)
        page.keyboard.press("Enter")
        page.locator("html[data-ready]").wait_for()
        caption(page, CAT)
        assert page.locator(".card .said").count() == 1


def test_the_page_takes_the_token_from_its_address_and_hides_it(visit, pipeline):
    with served(pipeline, access=Access("127.0.0.1", TOKEN)) as running:
        page = visit("audit", running.address, f"?token={TOKEN}")
        assert page.url == f"{running.address}/#audit"
        page.reload()  # the tab remembers it
        page.locator("html[data-ready]").wait_for()
        assert page.locator("#token").is_hidden()


# Search


def test_search_by_words_and_by_photo_shows_why_in_one_request(visit, server, pipeline):
    page = visit("search")
    asked = "a man in a red jacket" if MODEL else "a dog on the table"
    requests = []
    page.on("request", lambda request: requests.append(request.url.partition("/v1/")[2]))
    page.fill("#search-text", asked)
    page.keyboard.press("Enter")
    page.locator(".hit .seen").first.wait_for()
    assert [name for name in requests if name and not name.startswith("photos")] == ["search", "explain"]
    first = server.service.index.search(pipeline, asked, count=1)[0]
    hit = page.locator(".hit").first
    assert hit.locator(".said").inner_text() == f"{first.caption[0].upper()}{first.caption[1:]}."
    hit.locator(".seen button").first.hover()
    assert hit.locator(".box.lit").count() >= 1
    shot(page, "search")
    with page.expect_download() as coming:
        page.click("#search-json")
    assert json.loads(coming.value.path().read_text())[0]["path"] == Path(first.path).name  # below the indexed folder
    page.set_input_files("#search-file", str(CAT))
    page.locator("#search-asked figcaption:not(:empty)").wait_for()
    page.locator(".hit img").first.wait_for()
    assert "cat.jpg" in page.locator(".hit").first.inner_text()


def test_a_hit_opens_large_with_boxes_and_leads_to_similar_photos(visit):
    page = visit("search")
    page.fill("#search-text", "a dog on the table")
    page.keyboard.press("Enter")
    page.locator(".hit .seen").first.wait_for()
    name = page.locator(".hit .meter span").first.inner_text()
    page.locator(".hit .frame").first.click()
    assert page.locator("#viewer .name").inner_text() == name
    page.locator("#viewer .seen button").first.hover()
    assert page.locator("#viewer .box.lit").count() >= 1
    page.locator("#viewer").get_by_role("button", name="Find words").click()
    page.keyboard.type("a cup")
    page.keyboard.press("Enter")
    page.locator("#viewer .drawer .said").wait_for()
    page.locator("#viewer").get_by_role("button", name="Find similar").click()
    assert page.locator("#viewer").is_hidden()
    page.locator("#search-asked figcaption:not(:empty)").wait_for()
    page.locator(".hit img").first.wait_for()
    if page.locator(".rule button").count():
        page.locator(".rule button").click()
    names = page.locator(".hit .meter span").all_inner_texts()
    assert name not in names
    assert len(names) == len(PHOTOS) - 1


def test_weaker_matches_are_behind_a_line(visit, server, pipeline):
    page = visit("search")
    asked = "two cats"
    page.fill("#search-text", asked)
    page.keyboard.press("Enter")
    page.locator(".hit img").first.wait_for()
    hits = server.service.index.search(pipeline, asked, count=24)
    strong = sum(not hit.weak for hit in hits)
    assert 0 < strong < len(hits) == len(PHOTOS)
    assert page.locator(".hit").count() == strong
    line = page.get_by_role("button", name="weaker match")
    assert line.inner_text() == f"Show {len(hits) - strong} weaker match{'es' * (len(hits) - strong > 1)}"
    line.focus()
    page.keyboard.press("Enter")
    assert page.locator(".hit").count() == len(hits)
    assert page.locator(".rule h2").inner_text() == "Weaker matches"


def test_where_all_matches_are_weak_the_page_says_so(visit, server, monkeypatch):
    index = server.service.index
    search = index.search
    weak = lambda *given, **more: [replace(hit, weak=True) for hit in search(*given, **more)]  # noqa: E731
    monkeypatch.setattr(index, "search", weak)
    page = visit("search", query="?q=a+dog")
    page.get_by_role("button", name=f"Show {len(PHOTOS)} weaker matches").wait_for()
    assert page.locator("#search-count").inner_text() == f"No photo fits well; {len(PHOTOS)} weaker matches"
    assert page.locator(".hit").count() == 0
    page.get_by_role("button", name="weaker matches").click()
    page.locator(".hit img").nth(len(PHOTOS) - 1).wait_for()


def test_the_query_is_in_the_address_and_slash_focuses_the_search(visit):
    page = visit()
    page.keyboard.press("/")
    assert focused(page) == "search-text"
    page.keyboard.type("a dog/cup")  # in a field, it is a letter
    assert page.input_value("#search-text") == "a dog/cup"
    page.fill("#search-text", "a dog")
    page.fill("#search-without", "a cup")
    page.keyboard.press("Enter")
    page.locator(".hit img").first.wait_for()
    assert page.url.endswith("/?q=a+dog&not=a+cup#search")
    page.fill("#search-text", "a red ball")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=a+red+ball*")
    page.go_back()
    page.wait_for_url("**/?q=a+dog&not=a+cup#search")
    assert page.input_value("#search-text") == "a dog"
    page.reload()
    page.locator(".hit img").first.wait_for()
    assert page.input_value("#search-without") == "a cup"


def test_without_an_index_the_page_says_how_to_make_one(visit, pipeline):
    with served(pipeline) as running:
        page = visit("search", running.address)
        assert "sightline index" in page.locator("#panel-search .empty").inner_text()


# Audit


def test_a_captions_file_is_audited(visit, tmp_path):
    page = visit("audit")
    (tmp_path / "mine.csv").write_text("file,caption\ncat.jpg,A dog on a table.\ncoffee.jpg,A cup on a table.\n")
    page.click("#audit-go")
    assert page.locator("#audit-notice").inner_text() == "There are no captions. Choose a file of them, or type some."
    page.set_input_files("#audit-captions", str(tmp_path / "mine.csv"))
    page.set_input_files("#audit-photos", [str(path) for path in (CAT, COFFEE, EXAMPLES / "rocket.jpg")])
    page.click("#audit-go")
    cards = page.locator("#audits .card")
    cards.nth(1).wait_for()
    assert cards.first.locator(".said").inner_text() == "A dog on a table."
    assert "not supported" in page.locator("#audit-count").inner_text()
    page.locator("#audit-notice:not([hidden])").wait_for()
    assert "rocket.jpg has no caption" in page.locator("#audit-notice").inner_text()
    cards.first.locator(".said button").first.hover()
    assert re.search("the photo|contradicts|speaks", cards.first.locator(".tell").inner_text())
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


def test_typed_captions_are_audited(visit):
    page = visit("audit")
    page.set_input_files("#audit-photos", [str(CAT), str(COFFEE)])
    page.fill("#audit-typed", "A dog on a table.\n\nTwo cups.")
    page.click("#audit-go")
    page.locator("#audits .card").nth(3).wait_for()
    said = page.locator("#audits .said").all_inner_texts()
    assert sorted(said) == sorted(["A dog on a table.", "Two cups."] * 2)


# Everyone


def test_everything_is_done_with_the_keyboard_alone(visit, tmp_path):
    page = visit()
    give(page, copies(tmp_path / "many", 6))
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.locator("#tab-caption").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#panel-search").is_visible()
    assert page.evaluate("() => document.activeElement.id") == "tab-search"
    page.keyboard.press("ArrowLeft")
    for _ in range(40):  # to the first photo
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.className") == "open":
            break
    page.keyboard.press("Enter")
    assert page.locator("#viewer").is_visible()
    words = page.locator("#viewer .said button")
    for _ in range(10):  # to the words
        page.keyboard.press("Tab")
        if page.evaluate("() => Boolean(document.activeElement.closest('.said'))"):
            break
    assert page.locator("#viewer .box.lit").count() == 1
    page.keyboard.press("ArrowRight")
    assert words.nth(1 % words.count()).evaluate("(word) => word === document.activeElement")
    assert [words.nth(i).get_attribute("tabindex") for i in range(words.count())].count("0") == 1
    outline = words.first.evaluate("(word) => getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Escape")  # puts the light out
    assert page.locator(".lit").count() == 0
    assert page.locator("#viewer").is_visible()
    page.get_by_role("button", name="Edit").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+A")
    page.keyboard.type("a dog")
    page.keyboard.press("Enter")
    page.locator("#viewer .said", has_text="A dog.").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_function("() => document.activeElement.className === 'open'")  # where people came from
    assert page.locator("#viewer").is_hidden()
    page.keyboard.press("/")
    page.keyboard.type("a dog on the table")
    page.keyboard.press("Enter")
    page.locator(".hit .seen").first.wait_for()
    page.locator(".hit button", has_text="Open").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#viewer").is_visible()


def test_names_for_screen_readers_are_there(visit):
    page = visit()
    caption(page, CAT)
    assert page.locator("main").count() == 1
    assert page.locator("[role=status][aria-live=polite]").count() == 1
    assert page.get_by_role("tab", name="Audit").count() == 1
    assert page.get_by_role("alert").count() == 0  # nothing is wrong
    assert page.locator("[role=alert]").count() >= 3


WIDTHS = (320, 390, 768, 1440)
AXE_WIDTHS = (320, 1440)  # one on either side of the only width at which the style changes
COLOURS = ({"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"})


def states(visit, server, folder):
    """The page as people see it: empty, with captions, with one large, with hits, with an error, with audits."""
    page = visit()
    yield "start", page
    page.get_by_text("How captions should be").click()
    caption(page, CAT, COFFEE)
    page.get_by_role("button", name="Find words").first.click()
    yield "captions", page
    give(page, copies(folder, 4), 6)
    yield "grid", page
    page.locator(".open").first.click()
    page.locator("#viewer .said button").first.focus()
    yield "viewer", page
    page = visit("search", query="?q=a+dog+on+the+table")
    page.locator(".hit .seen").first.wait_for()
    if page.locator(".rule button").count():
        page.locator(".rule button").click()
    yield "hits", page
    page.fill("#search-without", "a dog on the table")
    page.keyboard.press("Enter")
    page.locator("#search-notice:not([hidden])").wait_for()
    yield "error", page
    page = visit("audit")
    page.set_input_files("#audit-photos", str(CAT))
    page.fill("#audit-typed", "A dog on a table.")
    page.click("#audit-go")
    page.locator("#audits .card").wait_for()
    yield "audit", page
    page.goto(f"{server.address}/docs")
    page.locator("html[data-ready]").wait_for()
    yield "docs", page


def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(visit, server, tmp_path):
    axe, found = axe_playwright.Axe(), []
    for name, page in states(visit, server, tmp_path / "many"):
        for colours in COLOURS:
            page.emulate_media(
                **{"color_scheme": "light", "forced_colors": "none", "reduced_motion": "reduce", **colours}
            )
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                where = f"{name}, {colours}, {width} px"
                if not fits(page):
                    found.append(f"{where}: wider than the window")
                if width not in AXE_WIDTHS:
                    continue
                for one in axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]:
                    found.append(f"{where}: {one['id']}: {[node['html'][:150] for node in one['nodes'][:3]]}")
    assert found == []


def test_dark_follows_the_system_and_the_button_and_is_remembered(visit):
    page = visit(color_scheme="dark")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    caption(page, CAT)
    shot(page, "dark")
    page.get_by_role("button", name="Dark theme").click()
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.reload()
    page.locator("html[data-ready]").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "light"


def test_on_a_phone_words_and_boxes_are_tapped(visit):
    page = visit(viewport={"width": 390, "height": 780}, device_scale_factor=2, has_touch=True, is_mobile=True)
    card = caption(page, CAT).first
    assert fits(page)
    card.locator(".said button").first.tap()
    assert card.locator(".box.lit").count() == 1
    card.locator(".name").tap()
    photo = card.locator(".photo").bounding_box()
    box = card.locator(".box:not(.extra)").last
    box.scroll_into_view_if_needed()
    place = box.bounding_box()
    page.touchscreen.tap(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.wait_for_timeout(300)  # the light stays
    assert card.locator(".box.lit").count() == 1
    assert card.locator(".said button.lit").count() >= 1
    assert photo["width"] <= 390
    card.scroll_into_view_if_needed()
    shot(page, "phone")


def test_motion_is_left_out_where_it_is_not_wanted(visit):
    page = visit(reduced_motion="reduce")
    assert page.locator(".drop").first.evaluate("(drop) => getComputedStyle(drop).transitionDuration") == "0s"
