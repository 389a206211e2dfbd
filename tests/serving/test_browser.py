"""The page in a real Chromium: typing, racing, replaying, errors, a narrow screen, the link, trees.

It is skipped where there is no Chromium with its driver (Debian: apt-get install chromium chromium-driver).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import longstride
from longstride.serving.server import Server
from longstride.translator import Translator, bundled_folder
from tests.serving.conftest import HANG, Served

selenium = pytest.importorskip("selenium", reason="selenium is not installed: pip install 'longstride[dev]'")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="there is no Chromium with its driver here: apt-get install chromium chromium-driver",
)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys as Key  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

LINE = "I forgot my umbrella on the train this morning."
MOST = 300
"""Characters that the server takes."""


@pytest.fixture(scope="module")
def address(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server on a socket, with the bundled model and the same with a tree for a draft."""
    folder = tmp_path_factory.mktemp("models") / "trees"
    shutil.copytree(bundled_folder(), folder)
    config = json.loads((folder / "config.json").read_text())
    config["decoders"]["draft-verify"]["defaults"] = {"tree": 12}
    (folder / "config.json").write_text(json.dumps(config))
    served = Served(translator, others={"trees": longstride.load(folder)}, max_characters=MOST)
    server = Server(served.app, "127.0.0.1", 0, served.settings)
    running = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    running.start()
    while not server.started:
        assert running.is_alive()
        running.join(0.01)
    yield f"http://127.0.0.1:{server.port}/"
    server.should_exit = True
    running.join(HANG)
    assert not running.is_alive()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield opened
    opened.quit()


class Page:
    """What a person sees and does."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser = browser

    def __getitem__(self, id: str) -> Any:
        return self.browser.find_element(By.ID, id)

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def lane(self, decoder: str, part: str) -> str:
        return str(self.browser.find_element(By.CSS_SELECTOR, f"[data-decoder={decoder}] {part}").text)

    def until(self, holds: Callable[[], Any]) -> Any:
        return WebDriverWait(self.browser, HANG, 0.02).until(lambda _: holds())

    def race(self) -> None:
        self["go"].click()
        self.until(lambda: self["player"].is_displayed())

    @property
    def step(self) -> int:
        return int(self["moment"].get_attribute("value"))


@pytest.fixture
def opened(browser: webdriver.Chrome, address: str) -> Callable[..., Page]:
    def opened(fragment: str = "", motion: bool = False, width: int = 1200) -> Page:
        feature = {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get("about:blank")
        browser.get(address + fragment)
        page = Page(browser)
        page.until(lambda: page["go"].is_enabled())
        return page

    return opened


def fragment(*decoders: str, model: str = "bundled") -> str:
    return f"#text={LINE.replace(' ', '+')}&decoders={','.join(decoders)}&model={model}"


def test_typing_and_racing(opened: Callable[..., Page], translator: Translator) -> None:
    page = opened()
    assert page["text"].get_attribute("value")  # an example
    page["text"].clear()
    page["text"].send_keys(LINE)
    decoders = ("greedy", "draft-verify", "lattice")
    for chip in page.all(".chip"):
        if chip.find_element(By.TAG_NAME, "input").is_selected() != (chip.text in decoders):
            chip.click()
    page["text"].send_keys(Key.CONTROL, Key.ENTER)
    page.until(lambda: "was first" in page["status"].text)
    for decoder in decoders:
        found = translator.translate([LINE], decoder, trace=True, batch=1)[0]
        assert found.trace is not None
        assert page.lane(decoder, ".tokens").removesuffix("END").strip() == found.text
        assert page.lane(decoder, ".rate") == f"{found.trace.committed / found.trace.iterations:.2f}"
        assert page.lane(decoder, ".time").endswith("ms") or page.lane(decoder, ".time").endswith(" s")
    assert "the same text" in page.lane("draft-verify", ".against")
    assert len(page.all("article")) == 3
    assert [box.accessible_name for box in page.all(".chip :checked")] == list(decoders)  # without their marks
    assert not [said for said in page.browser.get_log("browser") if said["level"] == "SEVERE"]


def test_replaying(opened: Callable[..., Page], translator: Translator) -> None:
    page = opened(fragment("draft-verify", "interleaved"), motion=True)
    page.race()
    page.until(lambda: page["play"].get_attribute("aria-label") == "Pause")
    page.until(lambda: page.step > 0)
    page["first"].click()
    assert page.step == 0
    assert page.lane("draft-verify", ".tokens") == ""
    Select(page["order"]).select_by_value("iteration")
    page["moment"].send_keys(Key.ARROW_RIGHT)
    assert page["moment"].get_attribute("aria-valuetext").startswith("iteration 1, step 1 of ")
    found = translator.translate([LINE], "draft-verify", trace=True, batch=1)[0].trace
    assert found is not None
    first = found.events[0]
    assert len(page.all("[data-decoder=draft-verify] .tokens .stood")) == first.accepted
    assert len(page.all("[data-decoder=draft-verify] .tokens .own")) == len(first.ids) - first.accepted
    assert page.all("[data-decoder=draft-verify] .tokens del")  # this sentence's first draft is rejected in part
    assert page.all("[data-decoder=interleaved] .tokens .gap")  # between both ends nothing stands yet
    told = f"{first.drafted} drafted, {first.accepted} stood, {len(first.ids)} written"
    assert page.lane("draft-verify", ".caption") == f"Iteration 1: {told}"
    page["forward"].click()
    assert page.step == 2
    page["back"].click()
    assert page.step == 1
    page.all("[data-decoder=draft-verify] summary")[0].click()
    page.until(lambda: len(page.all("[data-decoder=draft-verify] tbody tr")) == found.iterations)


def test_what_goes_wrong_is_told_in_a_sentence(opened: Callable[..., Page]) -> None:
    page = opened()
    page.browser.execute_script("document.getElementById('text').value = 'a '.repeat(arguments[0])", MOST)
    page["go"].click()
    page.until(lambda: f"exceeds text limit ({MOST})" in page["error"].text)
    assert page["error"].get_attribute("role") == "alert"
    assert not page["race"].is_displayed()
    page["text"].clear()
    page["go"].click()
    assert page["error"].text == "Type a text first."
    assert page.browser.switch_to.active_element == page["text"]
    page.browser.execute_script("window.fetch = () => Promise.reject(new TypeError('gone'))")
    page["text"].send_keys(LINE)
    page["go"].click()
    page.until(lambda: page["error"].text.startswith("The server cannot be reached"))
    page.browser.get_log("browser")  # which has the refusal in it


def test_a_narrow_screen_and_a_shared_link(opened: Callable[..., Page]) -> None:
    page = opened(fragment("greedy", "draft-verify", model="trees"), width=360)
    assert page["text"].get_attribute("value") == LINE
    assert page["model"].get_attribute("value") == "trees"
    assert [chip.text for chip in page.all(".chip:has(:checked)")] == ["greedy", "draft-verify"]
    page.race()
    assert page.browser.execute_script("return document.documentElement.scrollWidth") <= 360
    page["first"].click()
    Select(page["order"]).select_by_value("iteration")
    page["forward"].click()
    assert page.all("[data-decoder=draft-verify] .tokens .branch del")  # a tree that did not stand as a whole
    page["share"].click()
    page.until(lambda: page["link"].is_displayed())
    link = page["address"].get_attribute("value")
    assert link == page.browser.current_url
    assert link.endswith(fragment("greedy", "draft-verify", model="trees"))
