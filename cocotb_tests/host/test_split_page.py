"""The page that ``rnic split --html`` writes: it needs nothing else, says what it must, and works in a browser."""

from __future__ import annotations

import html.parser
import re
import shutil
import subprocess

import pytest

from open_rnic.cocotb_tests.host.test_split import SETTING
from open_rnic.cocotb_tests.limits import HANG
from open_rnic.host_driver.split.model import named, predict, splits
from open_rnic.host_driver.split.page import page
from open_rnic.host_driver.split.report import Report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Seen(html.parser.HTMLParser):
    """Tags that were opened and not closed, and all attributes."""

    VOID = {"meta", "br", "input", "link", "img"}

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text():
    from dataclasses import replace

    pytest.importorskip("matplotlib")
    some = [*named(SETTING), *list(splits(SETTING))[1::16]]
    found = [predict(replace(SETTING, lanes=lanes), split) for lanes in (2, 4) for split in some
             if split.device or lanes == 2]  # fmt: skip
    names = frozenset(split.device for split in named(SETTING))
    question = [
        predict(replace(SETTING, markers=on, crc=on), split) for on in (False, True) for split in named(SETTING)[::5]
    ]
    return page(Report(SETTING, ["figures <invented> for a test"], found, names, question))


def test_it_needs_nothing_else(text):
    seen = Seen(text)
    assert seen.open == []
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(seen.tags)
    for tag, name, value in seen.attributes:
        assert name not in {"src", "action", "data", "poster", "srcset"}, (tag, name, value)
        if name in {"href", "xlink:href"}:
            assert value.startswith("#"), (tag, name, value)
    assert not re.findall(r"@import|url\((?!#)", text)
    assert "default-src 'none'" in text  # a browser loads nothing, even if told to


def test_ids_are_unique_and_what_they_are_used_for_is_there(text):
    seen = Seen(text)
    ids = [value for _, name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = {value[1:] for _, name, value in seen.attributes if name in {"href", "xlink:href"}}
    used |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= set(ids)


def test_it_has_all_plots_tables_and_sources(text):
    for plot in ("throughput", "latency", "cycles"):
        assert text.count(f'<figure class="{plot}">') == 2  # a width each
    assert text.count('<figure class="pareto">') == 1
    assert text.count('<table class="figures">') == 3
    assert "figures &lt;invented&gt; for a test" in text
    assert "invented for a test" in text
    assert "estimate: CRC32CX of 8 octets" in text
    assert text.count("<li>On the device") == 5


@pytest.mark.skipif(BROWSER is None, reason="no browser: install the Debian package chromium")
def test_it_works_in_a_browser(text, tmp_path):
    probe = """
    <script>
    const said = [];
    const all = what => [...document.querySelectorAll(what)];
    const shown = () => all("figure svg").filter(svg => svg.getBoundingClientRect().height > 100);
    said.push(`plots ${shown().length}`);
    lanes.value = "2"; lanes.dispatchEvent(new Event("change"));
    said.push(`visible ${all("section[data-lanes]").filter(each => !each.hidden).map(each => each.dataset.lanes)}`);
    said.push(`plots ${shown().length}`);
    const box = document.querySelector("[data-line='1']"); box.click();
    const line = document.querySelector("section:not([hidden]) [id$='-line-1']");
    said.push(`line ${getComputedStyle(line).display}`);
    said.push(`wide ${document.documentElement.scrollWidth > innerWidth}`);
    document.title = said.join("; ") + "; ready " + document.documentElement.dataset.ready;
    </script>"""
    path = tmp_path / "report.html"
    path.write_text(text.replace("</body>", probe + "</body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
               "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1000,900", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    [title] = re.findall(r"<title>(.*?)</title>", done.stdout) or [done.stderr]
    assert title == "plots 4; visible 2; plots 4; line none; wide false; ready yes"
