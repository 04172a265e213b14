"""A site is rendered page by page, each page once, and its index when all pages are done.

Pages have addresses: however often a page is asked for, it is rendered once at a time. A page may include others; its
handler asks for them and waits, and gives its slot back meanwhile, so that one slot is enough for any depth. A whole
site is a batch: its end message renders the index.

    python -m examples.markdown_renderer
"""

from __future__ import annotations

import contextlib
import html
import re
import tempfile
from pathlib import Path

import penstock

INCLUDE = re.compile(r"^\{\{(.+)\}\}$", re.MULTILINE)
SITE = {
    "welcome.md": "# Welcome\n{{news.md}}\nBe *bold*.",
    "news.md": "# News\n{{legal.md}}\nNothing new.",
    "legal.md": "All rights reserved.",
}


class Renderer:
    def __init__(self, store: penstock.Store, folder: Path) -> None:
        self.folder = folder
        self.pages = store.queue("pages", lease_seconds=30)
        self.site = store.queue("site")
        self.app = penstock.App()
        self.app.add("pages", self.render_page, concurrency=1)
        self.app.add("site", self.render_index)

    def start(self) -> str:
        """All pages as one batch; the name of the batch."""
        batch = self.pages.batch("site")
        for name in SITE:
            with contextlib.suppress(penstock.DuplicateAddress):  # somebody has asked for this page already
                batch.send({"page": name}, address=name)
        batch.set_end({"index": sorted(SITE)})
        batch.start()
        return batch.name

    def render_page(self, delivery: penstock.Delivery) -> None:
        work = delivery.json()
        if "index" in work:  # the end message of the batch
            self.site.send(work)
            return
        text = SITE[work["page"]]
        for included in INCLUDE.findall(text):
            self.ask_for(included)
        rendered = INCLUDE.sub(lambda found: self.read(found[1]), markdown(text))
        (self.folder / work["page"]).with_suffix(".html").write_text(rendered, encoding="utf-8")

    def ask_for(self, page: str) -> None:
        """Until the page is there, whoever renders it."""
        with contextlib.suppress(penstock.DuplicateAddress):
            self.pages.send({"page": page}, address=page)
        self.pages.wait(page, timeout_seconds=60)

    def read(self, page: str) -> str:
        return (self.folder / page).with_suffix(".html").read_text(encoding="utf-8")

    def render_index(self, payload: dict[str, list[str]]) -> None:
        links = "".join(f'<li><a href="{Path(name).stem}.html">{Path(name).stem}</a></li>' for name in payload["index"])
        (self.folder / "index.html").write_text(f"<ul>{links}</ul>", encoding="utf-8")


def markdown(text: str) -> str:
    """As much of Markdown as this example needs."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"^# (.+)$", r"<h1>\1</h1>", escaped, flags=re.MULTILINE)
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", escaped)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, penstock.connect(f"sqlite:///{folder}/site.db") as store:
        renderer = Renderer(store, Path(folder))
        renderer.start()
        penstock.Worker(store, renderer.app).run(once=True)
        for path in sorted(Path(folder).glob("*.html")):
            print(f"{path.name}: {path.read_text(encoding='utf-8')}")


if __name__ == "__main__":
    main()
