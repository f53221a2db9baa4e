"""A page in a real browser: at the width of a telephone and of a desk, in the light and the dark.

A script that measures is added to a copy of the page; the page itself has none. A window is at
least 500 pixels wide, so the copy is looked at in a frame.
"""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from mainspring import load_scenario, run

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="needs chromium, chromium-browser or google-chrome on the PATH"
)

SCENARIO = Path(__file__).parents[2] / "scenarios/two-clients.toml"
READABLE = 4.5
"""The contrast of text that WCAG 2.1 asks for (criterion 1.4.3, AA)."""

MEASURE = """
<script>
function channels(colour) { return colour.match(/[\\d.]+/g).map(Number); }
function luminance(colour) {
  const [r, g, b] = channels(colour).slice(0, 3).map(
    c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function behind(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if ((channels(colour)[3] ?? 1) === 1) return colour;
  }
}
function contrast(element) {
  const style = getComputedStyle(element);
  const text = luminance(element.closest("svg") ? style.fill : style.color);
  const paper = luminance(behind(element));
  return (Math.max(text, paper) + 0.05) / (Math.min(text, paper) + 0.05);
}
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(details => details.open = true);
  const texts = [...document.querySelectorAll("body *")].filter(
    e => [...e.childNodes].some(c => c.nodeType === 3 && c.data.trim()) && e.tagName !== "SCRIPT");
  const pale = texts.map(e => [contrast(e), e.textContent.trim().slice(0, 40)]);
  parent.postMessage(JSON.stringify({
    width: innerWidth,
    scrolls: document.documentElement.scrollWidth,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    texts: texts.length,
    palest: pale.sort((a, b) => a[0] - b[0]).slice(0, 3),
    figures: [...document.querySelectorAll("figure svg")].map(
      svg => [svg.getBoundingClientRect().width, svg.getBoundingClientRect().height]),
    smallest: Math.min(...[...document.querySelectorAll("figure svg")].map(
      svg => Math.min(...[...svg.querySelectorAll("text")].map(
        t => parseFloat(getComputedStyle(t).fontSize) * svg.getScreenCTM().a)))),
  }), "*");
});
</script>
"""

FRAME = """\
<!DOCTYPE html>
<meta name="color-scheme" content="light dark">
<iframe src="measured.html" style="border: 0; width: {width}px; height: 1000px"></iframe>
<pre id="measured"></pre>
<script>
addEventListener("message", event => document.getElementById("measured").textContent = event.data);
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with all that a page may have: several policies, clients and models, many misses."""
    home = tmp_path_factory.mktemp("browser")
    runs = run(load_scenario(SCENARIO, ["duration_s=20"]), home / "out")
    return runs.report(home / "page.html")


def looked_at(page: Path, width: int, dark: bool) -> tuple[dict, list[str]]:
    """What the browser measures, and what it writes to its console."""
    copy, frame = page.with_name("measured.html"), page.with_name("frame.html")
    copy.write_text(page.read_text().replace("</body>", f"{MEASURE}</body>"))
    frame.write_text(FRAME.format(width=width))
    came = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--enable-logging=stderr", f"--user-data-dir={page.parent / 'profile'}",
            "--window-size=1700,1100", "--virtual-time-budget=5000",
            f"--blink-settings=preferredColorScheme={int(not dark)}",
            "--dump-dom", frame.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    measured = re.search(r'<pre id="measured">(.+?)</pre>', came.stdout, re.DOTALL)
    assert measured is not None, came.stderr
    return json.loads(unescape(measured[1])), re.findall(r".*CONSOLE.*", came.stderr)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_a_page_is_readable(page, width, dark):
    seen, console = looked_at(page, width, dark)
    assert console == []
    assert (seen["width"], seen["dark"]) == (width, dark)
    assert seen["scrolls"] <= width
    assert seen["texts"] > 300
    assert seen["palest"][0][0] >= READABLE, seen["palest"]
    assert len(seen["figures"]) == 3
    for wide, high in seen["figures"]:
        assert 300 < wide <= width
        assert high > 200
    assert seen["smallest"] >= 8  # CSS pixels


def test_the_console_is_heard(page):
    """The check above can fail: what a page writes to its console is found."""
    noisy = page.with_name("noisy.html")
    noisy.write_text(page.read_text().replace("</body>", "<script>boom()</script></body>"))
    assert "boom is not defined" in looked_at(noisy, 400, dark=False)[1][0]
