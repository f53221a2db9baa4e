"""Figures for a page: SVG that takes its colours, and its font, from the page around it.

A page may be read in the light or in the dark, so what is black, grey or white in a figure becomes
a CSS variable (`VARIABLES`), which the page defines for both. Text stays text.
Not here: the page (mainspring/page.html.j2), and what is drawn (plots.py, bands.py).
"""

import io
import re
from html import escape
from typing import Final

import matplotlib as mpl

from results.plots import COLOURS, FATES, GREY, STYLE, Picture

VARIABLES: Final[dict[str, str]] = {
    **{colour.lower(): f"--run-{i}" for i, colour in enumerate(COLOURS, 1)},
    **{colour.lower(): f"--fate-{name.split()[0]}" for name, (_, colour) in FATES.items()},
    GREY.lower(): "--quiet",
    "#222222": "--ink",
    "#e4e4e4": "--line",
    "#ffffff": "--paper",
}
"""The CSS variable for each colour of our figures."""


def inline(picture: Picture, label: str, key: str) -> str:
    """A figure as an <svg> element to be put into HTML.

    label: what it shows, for who cannot see it. key: what its parts are named by, to be told from
    those of other figures on the page. It refers to nothing outside itself.
    """
    stream = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.fonttype": "none"}):
        picture.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    for junk in (r"<!--.*?-->", r"<metadata>.*?</metadata>", r"<style[^>]*>.*?</style>"):
        text = re.sub(junk, "", text, flags=re.DOTALL)
    text = _own_ids(text, f"{key}-")
    text = re.sub(r"#[0-9a-f]{6}\b", lambda match: _variable(match[0]), text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    # matplotlib's own size is in points; the page gives it the room that there is.
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None, "matplotlib gives every figure a viewBox"
    head = f'<svg role="img" aria-label="{escape(label)}" {box[0]}>'
    return re.sub(r"\s*\n\s*", "\n", head + text[text.index(">") + 1 :].strip())


def _variable(colour: str) -> str:
    name = VARIABLES.get(colour)
    return f"var({name})" if name else colour


def _own_ids(text: str, prefix: str) -> str:
    """Names of parts are kept where something refers to them, and are the figure's own."""
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text))
    names = {name for pair in used for name in pair if name}

    def rename(match: re.Match[str]) -> str:
        return f' id="{prefix}{match[1]}"' if match[1] in names else ""

    text = re.sub(r' id="([^"]+)"', rename, text)
    text = re.sub(r"url\(#", f"url(#{prefix}", text)
    return re.sub(r'xlink:href="#', f'href="#{prefix}', text)
