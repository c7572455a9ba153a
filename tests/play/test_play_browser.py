"""The playground in a real browser: every tab, as a person uses it."""

import contextlib
import io
import json
import os
import re
import shutil
import time
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image
from served import Served

import kronfield as kf
from kronfield.play import points, reconstruct, repair
from kronfield.play.encode import drawn_heights
from kronfield.play.pictures import built_in
from kronfield.play.states import RECONSTRUCT, REPAIR, checked

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Milliseconds to wait for an answer: the machine may be busy.
PATIENCE = 60_000

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no browser: on Debian, apt-get install chromium"
    ),
    # of Playwright's own event loop
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def server():
    served = Served()
    yield served
    served.end()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser, server):
    """A function that opens the page with a state; no error may come up on its console."""
    errors, contexts = [], []

    def opened(tab="encode", *, width=1280, dark=False, address=None, **state):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            permissions=["clipboard-read", "clipboard-write"],
            accept_downloads=True,
        )
        contexts.append(context)
        one = context.new_page()
        one.set_default_timeout(PATIENCE)
        one.on("pageerror", lambda error: errors.append(str(error)))
        parameters = "".join(f"&{name}={value}" for name, value in state.items())
        one.goto(address or f"{server.address}&tab={tab}{parameters}")
        return one

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


def text(one, selector):
    return one.inner_text(selector)


def until(one, condition):
    """Wait for a condition in JavaScript: Playwright's own way needs eval, which is forbidden."""
    end = time.monotonic() + PATIENCE / 1000
    while not one.evaluate(f"Boolean({condition})"):
        assert time.monotonic() < end, condition
        one.wait_for_timeout(30)


def state_of(one):
    query = parse_qs(urlsplit(one.url).query)
    return {name: values[0] for name, values in query.items() if name not in ("token", "tab")}


def code_of(one):
    one.click("#copy-python")
    until(one, "document.getElementById('code-dialog').open")
    code = one.input_value("#code")
    one.click("#code-close")
    return code


def printed(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "page", "exec"), {})
    return [float(number) for number in re.findall(r"-?\d+\.\d+(?:e[-+]?\d+)?", out.getvalue())]


def numbers_of(cells):
    return [float(cell) for cell in cells if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", cell)]


# Encode
# ------------------------------------------------------------------------------------------


def test_encode_shows_the_numbers_of_the_library_as_a_slider_moves(page):
    one = page()
    until(one, "document.querySelectorAll('#encode-numbers td.a').length === 1")
    before = text(one, "#encode-numbers tbody")
    one.focus("#encode-as-slider")
    for _ in range(25):
        one.keyboard.press("ArrowRight")
    until(one, f"document.querySelector('#encode-numbers tbody').innerText !== {before!r}")
    until(
        one,
        "document.querySelector('#encode-numbers td.a').innerText.includes("
        "`width=${document.getElementById('encode-as').value},`)",
    )
    width = float(one.input_value("#encode-as"))
    assert width > 0.02
    cells = one.locator("#encode-numbers tbody td").all_inner_texts()
    emb, x = kf.Gaussian(64, width), np.arange(32) / 32
    shown = [float(cell) for cell in cells[1:4]]
    wanted = [kf.stable_rank(emb(x)), emb.stable_rank(32), kf.distance_preservation(emb)]
    assert np.allclose(shown, wanted, rtol=1e-3)
    assert float(state_of(one)["as"]) == width
    found = printed(code_of(one))
    for cell in cells[4:]:
        assert any(np.isclose(float(cell), number, rtol=1e-2) for number in found)


def test_two_embedders_are_matched_and_a_signal_is_drawn(page):
    one = page(**{"as": "0.03"})
    until(one, "document.querySelectorAll('#encode-numbers td.a').length === 1")
    one.click("#encode-match")
    until(one, "document.querySelectorAll('#encode-numbers td.b').length === 1")
    assert np.isclose(float(state_of(one)["bs"]) * 0.03, 1 / (2 * np.sqrt(2) * np.pi), rtol=1e-3)
    assert one.is_visible("#encode-basis-b")
    box = one.locator("#encode-fit").bounding_box()
    one.mouse.move(box["x"] + 100, box["y"] + 60)
    one.mouse.down()
    one.mouse.move(box["x"] + 500, box["y"] + 150, steps=12)
    one.mouse.up()
    until(one, "new URLSearchParams(location.search).get('signal') === 'drawn'")
    drawn = state_of(one)["drawn"]
    assert len(drawn) == 128
    assert len(set(re.findall("..", drawn))) > 20  # the line that was drawn rises or falls


def test_a_signal_is_drawn_by_the_keyboard(page):
    one = page(signal="steps")
    until(one, TABS["encode"])
    one.focus("#encode-fit")
    for key in ("ArrowRight", "ArrowUp", "ArrowUp", "Shift+ArrowRight"):
        one.keyboard.press(key)
    until(one, "new URLSearchParams(location.search).get('drawn')")
    heights = drawn_heights(state_of(one)["drawn"])
    # the step has -0.5 on its left
    assert np.allclose(heights[:4], [-0.5, -0.4, -0.4, -0.5], atol=0.002)
    assert "Place 3 of 64, height -0.40" in text(one, "#status")
    assert one.is_visible("#encode-fit .pen")
    one.focus("#encode-k")
    until(one, "document.querySelector('#encode-fit .pen') === null")


# Reconstruct
# ------------------------------------------------------------------------------------------


def psnr_of(one, name):
    return float(re.search(r"PSNR ([\d.]+) dB", text(one, f"#panel-{name} .figures"))[1])


def test_reconstruct_shows_the_psnr_of_the_library(page):
    one = page("reconstruct", picture="shapes", side=64)
    for name in ("closed", "chosen", "linear", "cubic", "pchip"):
        one.wait_for_selector(f"#panel-{name}")
    state = checked(RECONSTRUCT, {"picture": "shapes", "side": 64})
    picture = built_in("shapes", 64)
    assert np.isclose(
        psnr_of(one, "closed"), reconstruct.answer(state, picture)["closed"]["psnr"], atol=0.006
    )
    for name, found in reconstruct.baselines(state, picture).items():
        assert np.isclose(psnr_of(one, name), found["psnr"], atol=0.006)
    found = printed(code_of(one))
    for name in ("closed", "chosen", "linear", "cubic", "pchip"):
        assert any(np.isclose(psnr_of(one, name), number, atol=0.006) for number in found)
    # another width, typed; then zoom, and errors
    before = psnr_of(one, "closed")
    one.fill("#reconstruct-s", "1.5")
    one.press("#reconstruct-s", "Tab")
    until(one, f"!document.querySelector('#panel-closed .figures').innerText.includes('{before}')")
    whole = one.get_attribute("#panel-chosen img", "src")
    one.click("#reconstruct-zoom")
    until(one, f"document.querySelector('#panel-chosen img').src !== {json.dumps(whole)}")
    assert state_of(one)["zoom"] == "0.375,0.375"
    one.click("#reconstruct-unzoom")
    one.select_option("#reconstruct-show", "error")
    until(one, f"document.querySelector('#panel-chosen img').src !== {json.dumps(whole)}")


def test_a_network_is_trained_in_sight_and_stops(page):
    one = page("reconstruct", picture="waves", side=128, depth=2, epochs=2000)
    one.wait_for_selector("#panel-closed")
    one.click("#reconstruct-train")
    one.wait_for_selector("#panel-network")
    first = one.get_attribute("#panel-network img", "src")
    until(one, f"document.querySelector('#panel-network img').src !== {json.dumps(first)}")
    assert "epoch" in text(one, "#reconstruct-training")
    assert "torch" in code_of(one)
    one.click("#reconstruct-stop")
    until(one, "document.getElementById('reconstruct-stop').disabled")
    assert "stopped" in text(one, "#reconstruct-training")
    one.fill("#reconstruct-epochs", "3")
    one.press("#reconstruct-epochs", "Tab")
    one.click("#reconstruct-train")
    until(one, "document.getElementById('reconstruct-training').innerText.includes('done')")
    assert "epoch 3 of 3" in text(one, "#reconstruct-training")
    # the code trains it again; other settings remove what was trained with these
    shown = psnr_of(one, "network")
    assert any(np.isclose(shown, number, atol=0.006) for number in printed(code_of(one)))
    one.select_option("#reconstruct-side", "64")
    until(one, "document.getElementById('panel-network') === null")
    assert "torch" not in code_of(one)


def test_a_slider_that_moves_ends_training_and_says_so(page):
    one = page("reconstruct", picture="waves", side=64, depth=2, epochs=2000)
    one.wait_for_selector("#panel-closed")
    one.click("#reconstruct-train")
    one.wait_for_selector("#panel-network")
    one.fill("#reconstruct-s", "1.5")
    one.press("#reconstruct-s", "Tab")
    until(one, "document.getElementById('panel-network') === null")
    assert "settings have changed" in text(one, "#reconstruct-training")
    assert one.is_disabled("#reconstruct-stop")


def test_a_picture_is_dropped_on_the_page(page):
    buffer = io.BytesIO()
    pixels = (255 * built_in("waves", 50)).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, format="PNG")
    one = page("reconstruct", picture="shapes", side=64)
    one.wait_for_selector("#panel-closed")
    data = one.evaluate_handle(
        """(bytes) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], "mine.png", { type: "image/png" }));
          return data;
        }""",
        list(buffer.getvalue()),
    )
    one.dispatch_event("main", "drop", {"dataTransfer": data})
    until(one, "new URLSearchParams(location.search).get('picture')?.startsWith('sent-')")
    assert one.input_value("#reconstruct-picture").startswith("sent-")
    bad = {"name": "bad.png", "mimeType": "image/png", "buffer": b"no picture"}
    one.set_input_files("#reconstruct-file", bad)
    until(one, "document.getElementById('status').innerText.includes('cannot be read')")


# Repair
# ------------------------------------------------------------------------------------------


def test_a_mask_is_painted_and_filled(page):
    one = page("repair", picture="shapes", side=64, noise=0)
    until(
        one,
        "document.querySelector('#repair-numbers td').innerText.includes('dB')"
        " || document.querySelector('#repair-numbers td').innerText === '-'",
    )
    box = one.locator("#repair-paint").bounding_box()
    one.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    one.mouse.down()
    one.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=8)
    one.mouse.up()
    until(one, "document.querySelectorAll('#repair-numbers td')[2].innerText.includes('dB')")
    strokes = state_of(one)["strokes"]
    state = checked(REPAIR, {"picture": "shapes", "side": 64, "noise": 0, "strokes": strokes})
    found = repair.answer(state, built_in("shapes", 64))
    assert found["missing"] > 50
    shown = one.locator("#repair-numbers td").all_inner_texts()
    assert np.isclose(float(shown[2].split()[0]), found["psnr_holes"], atol=0.006)
    assert any(np.isclose(found["psnr_holes"], number) for number in printed(code_of(one)))
    with one.expect_download() as saved:
        one.click("#repair-save-picture")
    assert Image.open(saved.value.path()).size == (64, 64)
    one.click("#repair-clear")
    until(one, "document.querySelectorAll('#repair-numbers td')[2].innerText === '-'")


def test_noise_is_found_and_removed_and_the_brush_has_keys(page):
    one = page("repair", picture="waves", side=64, noise=0.1)
    until(one, "document.querySelectorAll('#repair-numbers td')[1].innerText.includes('dB')")
    before, after, _, sigma, _ = one.locator("#repair-numbers td").all_inner_texts()
    assert float(after.split()[0]) > float(before.split()[0]) + 3
    assert np.isclose(float(sigma), 0.1, rtol=0.2)
    one.focus("#repair-paint")
    for key in ("ArrowLeft", "ArrowUp", " "):
        one.keyboard.press(key)
    until(one, "new URLSearchParams(location.search).get('strokes')?.includes(':')")
    one.evaluate("document.getElementById('repair-divider').value = 20")
    one.dispatch_event("#repair-divider", "input")
    assert "80%" in one.evaluate("document.getElementById('repair-over').style.clipPath")


# Points
# ------------------------------------------------------------------------------------------


def test_points_are_placed_and_fitted(page):
    one = page("points")
    until(one, "document.getElementById('points-numbers').innerText.startsWith('24 points')")
    box = one.locator("#points-map").bounding_box()
    one.mouse.click(box["x"] + 0.05 * box["width"], box["y"] + 0.05 * box["height"])
    until(one, "document.getElementById('points-numbers').innerText.startsWith('25 points')")
    x, y, value = map(float, state_of(one)["points"].split(";")[-1].split(","))
    assert np.allclose([x, y, value], [0.05, 0.95, 0.5], atol=0.01)
    one.fill("#points-new", "0.5 0.5 nonsense")
    one.click("#points-add")
    assert "three numbers" in text(one, "#status")
    one.fill("#points-new", "0.9, 0.1, 2")
    one.click("#points-add")
    until(one, "document.getElementById('points-numbers').innerText.startsWith('26 points')")
    one.select_option("#points-show", "error")
    one.check("#points-arrows")
    until(one, "document.getElementById('points-scale').innerText.includes('standard errors')")
    state = {"points": state_of(one)["points"]}
    rows = points.given_points(state, None)
    field = kf.fit_points(rows[:, :2], rows[:, 2], domain=[(0, 1), (0, 1)])
    middle = field(np.array([[0.5, 0.5]])).item()
    assert any(np.isclose(middle, number, rtol=1e-6) for number in printed(code_of(one)))
    # by the keyboard: a point is placed, and removed again
    one.focus("#points-map")
    for key in ("ArrowRight", "Shift+ArrowDown", " "):
        one.keyboard.press(key)
    until(one, "document.getElementById('points-numbers').innerText.startsWith('27 points')")
    placed = list(map(float, state_of(one)["points"].split(";")[-1].split(",")))
    assert np.allclose(placed, [0.52, 0.4, 0.5])
    one.keyboard.press("ArrowRight")
    one.keyboard.press("ArrowLeft")
    assert text(one, "#status") == "x 0.520, y 0.400, on a point"
    one.keyboard.press(" ")
    until(one, "document.getElementById('points-numbers').innerText.startsWith('26 points')")
    one.click("#points-clear")
    until(one, "document.getElementById('points-problem').innerText.includes('3 or more')")


def test_a_table_is_loaded(page):
    rows = "x,y,value\n" + "\n".join(f"{i % 7},{i % 5},{i % 11}" for i in range(35))
    one = page("points")
    until(one, "document.getElementById('points-numbers').innerText.startsWith('24 points')")
    table = {"name": "mine.csv", "mimeType": "text/csv", "buffer": rows.encode()}
    one.set_input_files("#points-file", table)
    until(one, "document.getElementById('points-numbers').innerText.startsWith('35 points')")
    with one.expect_download() as saved:
        one.click("#points-save")
    field = kf.load(saved.value.path())
    assert field(np.array([[3.0, 2.0]])).shape == (1,)


# the page as a whole
# ------------------------------------------------------------------------------------------

TABS = {
    "encode": "document.querySelectorAll('#encode-numbers td.a').length === 1",
    "reconstruct": "document.getElementById('panel-closed') !== null",
    "repair": "document.getElementById('repair-after').src.startsWith('data:')",
    "points": "document.getElementById('points-numbers').innerText.includes('points')",
}
SMALL = {
    "reconstruct": {"picture": "waves", "side": 64},
    "repair": {"picture": "waves", "side": 64},
}
# The contrast of two colours (WCAG 2.1), of all texts against what is behind them.
CONTRAST = """() => {
  const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const lum = (c) => c.map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const c = rgb(getComputedStyle(one).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = Array.from(node.childNodes).some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!own || !node.checkVisibility() || node.disabled || node.closest("svg, select")) continue;
    const [a, b] = [rgb(getComputedStyle(node).color), behind(node)].map((c) => lum(c.slice(0, 3)));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push(`${node.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return bad;
}"""
CONTROLS = "input, select, textarea, button, img, canvas"
UNNAMED = f"""() => Array.from(document.querySelectorAll("{CONTROLS}"))
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.alt
    || (one.tagName === "BUTTON" && one.textContent.trim())))
  .map((one) => one.outerHTML.slice(0, 90))"""


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("width", [1280, 390])
def test_every_tab_fits_is_labelled_and_can_be_read(page, tab, width):
    one = page(tab, width=width, dark=width == 390, **SMALL.get(tab, {}))
    until(one, TABS[tab])
    assert one.evaluate("document.documentElement.scrollWidth") <= width
    assert one.evaluate(UNNAMED) == []
    assert one.evaluate(CONTRAST) == []


def test_tabs_are_reached_by_the_keyboard_and_focus_is_seen(page):
    one = page()
    until(one, TABS["encode"])
    one.focus("#tab-encode")
    one.keyboard.press("ArrowRight")
    until(one, TABS["reconstruct"])
    assert one.is_visible("#reconstruct")
    assert not one.is_visible("#encode")
    assert one.get_attribute("#tab-reconstruct", "aria-selected") == "true"
    assert one.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    one.keyboard.press("ArrowLeft")
    assert one.is_visible("#encode")


def test_an_address_opens_the_same_state_and_bad_ones_are_told(page, server):
    one = page(k="16", n="8", b="triangle", bs="0.25")
    until(one, "document.querySelectorAll('#encode-numbers td.b').length === 1")
    first = text(one, "#encode-numbers tbody")
    again = page(address=one.url)
    until(again, "document.querySelectorAll('#encode-numbers td.b').length === 1")
    assert text(again, "#encode-numbers tbody") == first
    assert "Triangle(size=16, width=0.25" in first
    bad = page(k="100000")
    until(bad, "document.getElementById('status').innerText.includes('at most 256')")
    for tab in ("reconstruct", "repair"):
        between = page(tab, picture="waves", side="100")
        until(between, TABS[tab])
        assert between.input_value(f"#{tab}-side") == "100"
    lost = page(address=f"http://127.0.0.1:{server.port}/?token=other")
    assert "whole address" in lost.content()


@pytest.mark.parametrize(
    ("tab", "state", "says"),
    [
        ("encode", {"k": "many"}, "#status"),
        ("encode", {"a": "wavelet"}, "#status"),
        ("encode", {"as": "nan", "b": "constructor"}, "#status"),
        ("reconstruct", {"kind": "sine", "side": "1e9"}, "#reconstruct-problem"),
        ("reconstruct", {"picture": "sent-0123456789abcdef"}, "#reconstruct-problem"),
        ("reconstruct", {"zoom": "here"}, "#reconstruct-problem"),
        ("repair", {"strokes": "paint", "side": "x"}, "#repair-problem"),
        ("repair", {"picture": "file"}, "#repair-problem"),
        ("points", {"points": "1;2,3", "show": "all"}, "#points-problem"),
        ("points", {"table": "sent-0123456789abcdef"}, "#points-problem"),
    ],
)
def test_an_odd_address_is_a_sentence_and_the_page_lives_on(page, tab, state, says):
    one = page(tab, **state)
    until(one, f"document.querySelector('{says}').innerText.includes('expected')")
    one.set_viewport_size({"width": 700, "height": 900})  # it is drawn again
    one.wait_for_timeout(200)
    one.click("#tab-points" if tab == "encode" else "#tab-encode")
    until(one, TABS["points" if tab == "encode" else "encode"])


def test_the_page_says_when_the_server_has_gone(page):
    mine = Served()
    one = page(address=mine.address)
    until(one, TABS["encode"])
    mine.end()
    one.focus("#encode-as-slider")
    one.keyboard.press("ArrowRight")
    until(one, "document.getElementById('status').innerText.includes('does not answer')")
    second = Served(port=mine.port)
    try:
        one.keyboard.press("ArrowRight")  # another server: another token
        until(one, "document.getElementById('status').innerText.includes('whole address')")
    finally:
        second.end()


@pytest.mark.skipif(
    "KRONFIELD_SCREENSHOTS" not in os.environ, reason="KRONFIELD_SCREENSHOTS=folder keeps pictures"
)
@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_screenshots(page, tab, width, dark):
    one = page(tab, width=width, dark=dark, **({"b": "rff"} if tab == "encode" else {}))
    until(one, TABS[tab])
    one.wait_for_timeout(3000)
    name = f"{tab}-{width}-{'dark' if dark else 'light'}.png"
    one.screenshot(path=os.path.join(os.environ["KRONFIELD_SCREENSHOTS"], name), full_page=True)
