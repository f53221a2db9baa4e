"""Reads a page as strictly as a browser does not: tags that close, names that are there once."""

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "hr", "img", "link", "input"}
REFERENCES = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "xmlns"}


class Page(HTMLParser):
    """A page that has been read. text: all that it says; tags: which it has, and how many."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.text = ""
        self.ids: list[str] = []
        self.references: list[str] = []
        self.styles: list[str] = []
        self.tags: dict[str, int] = {}
        self._open: list[str] = []
        self.feed(self.source)
        self.close()
        assert not self._open, f"{self._open} are never closed"
        assert len(self.ids) == len(set(self.ids)), "an id is there twice"
        assert {ref[1:] for ref in self.references if ref.startswith("#")} <= set(self.ids)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            assert not name.startswith("on"), f"{name} runs a script"
            if name == "id":
                self.ids.append(value)
            if name in REFERENCES:
                self.references.append(value)
            if name == "style":
                self.styles.append(value)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        if self._open and self._open[-1] == "style":
            self.styles.append(data)
        else:
            self.text += data

    def says(self, *texts: str) -> bool:
        """Whether it says all of these, whatever the breaks of its lines."""
        said = " ".join(self.text.split())
        return all(text in said for text in texts)
