"""The page that ``rnic split --html`` writes: it is self-contained and complete, and works in a browser."""

from __future__ import annotations

import html
import html.parser
import re
import subprocess
from dataclasses import replace
from datetime import date
from importlib.metadata import version

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_split import HOST, LINK, SETTING, invented
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs, program
from open_rnic.host_driver.tools.split import page as module
from open_rnic.host_driver.tools.split.model import Setting, named, predict, splits
from open_rnic.host_driver.tools.split.page import page
from open_rnic.host_driver.tools.split.report import Report, crossovers, standing
from open_rnic.host_driver.tools.split.sizes import size_of
from open_rnic.host_driver.tools.split.stages import Stage


class Seen(html.parser.HTMLParser):
    """Collects tags that are not closed, and all attributes."""

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


def report(setting=SETTING, widths=(2, 4)):
    some = [*named(setting), *list(splits(setting))[1::16]]
    found = [predict(replace(setting, lanes=lanes), split) for lanes in widths for split in some
             if split.device or lanes == widths[0]]  # fmt: skip
    names = frozenset(split.device for split in named(setting))
    question = [
        predict(replace(setting, markers=on, crc=on), split) for on in (False, True) for split in named(setting)[::5]
    ]
    return Report(setting, ["figures <invented> for a test"], found, names, question)


@pytest.fixture(scope="module")
def text():
    pytest.importorskip("matplotlib")
    return page(report(), "rnic split --html 'a & b'", date(2026, 2, 3))


def test_the_page_needs_no_other_resources(text):
    seen = Seen(text)
    assert seen.open == []
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(seen.tags)
    for tag, name, value in seen.attributes:
        assert name not in {"src", "action", "data", "poster", "srcset"}, (tag, name, value)
        if name in {"href", "xlink:href"}:
            assert value.startswith("#"), (tag, name, value)
    assert not re.findall(r"@import|url\((?!#)", text)
    assert "default-src 'none'" in text  # makes the browser refuse to load other resources


def test_ids_are_unique_and_all_references_exist(text):
    seen = Seen(text)
    ids = [value for _, name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = {value[1:] for _, name, value in seen.attributes if name in {"href", "xlink:href"}}
    used |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= set(ids)


def test_the_page_has_all_plots_tables_and_sources(text):
    for plot in ("throughput", "latency", "cycles"):
        assert text.count(f'<figure class="{plot}">') == 2  # one for each width
    assert text.count('<figure class="pareto">') == 1
    assert text.count('<table class="figures">') == 3
    assert "figures &lt;invented&gt; for a test" in text
    assert "invented for a test" in text
    assert "estimate: CRC32CX of 8 octets" in text
    assert text.count("<li>“") == 5 * 2  # each split at each width


def captions(text, figure):
    """Return the captions of the plots of this kind."""
    return re.findall(rf'<figure class="{figure}">.*?<figcaption>(.*?)</figcaption>', text, re.DOTALL)


@pytest.fixture(scope="module")
def slow():
    """Return a page about one width of a device that is too slow to pay off."""
    pytest.importorskip("matplotlib")
    return page(report(Setting(HOST, LINK, invented(clock=1e6)), widths=(2,)), "rnic split", date(2026, 2, 3))


def test_the_page_has_its_command_and_date(text):
    [command] = re.findall(r'<code id="command">(.*?)</code>', text)
    assert html.unescape(command) == "rnic split --html 'a & b'"
    assert f"Open RNIC {version('open-rnic')}, on 2026-02-03" in text


@pytest.mark.parametrize(("figure", "word"), [("throughput", "slower"), ("latency", "later")])
def test_splits_that_are_always_worse_are_named(slow, figure, word):
    [caption] = captions(slow, figure)
    assert "Circles" not in caption
    [names] = re.findall(rf"At every size (.*) are {word} than the host alone\.$", caption)
    assert set(re.findall("“(.*?)”", names)) == {"markers", "CRC", "markers, CRC", "FPDUs", "MPA"}


def test_each_split_has_a_crossover_or_is_on_one_side_of_the_host():
    lines = report().lines(2)
    for what in ("throughput", "half round trip"):
        stands = [name for names in standing(lines, what) for name in names]
        crosses = {each.after for each in crossovers(lines, what)} | {each.before for each in crossovers(lines, what)}
        assert len(stands) == len(set(stands))
        assert set(stands) | crosses >= {line.name for line in lines}


@pytest.mark.parametrize(
    ("octets", "size"),
    [
        (1, "1 octet"),
        (56.2, "56 octets"),
        (1010, "1010 octets"),
        (1460, "1.43 KiB"),
        (1010 << 10, "1010 KiB"),
        (3 << 20, "3 MiB"),
    ],
)
def test_sizes_are_whole_octets_without_powers_of_ten(octets, size):
    assert size_of(octets) == size


def test_a_change_of_throughput_is_a_rise_or_a_fall(text, slow):
    assert "changes by" not in text + slow
    assert slow.count("throughput falls by") == 5


def test_line_names_occur_once_and_a_single_width_has_no_selection(text, slow):
    assert not re.findall(r'id="(?:throughput|latency)\d+-legend', text)  # the check boxes are the legend
    assert 'id="cycles2-legend' in text
    assert '<select id="lanes">' in text
    assert "<select" not in slow
    assert "1 lanes" not in text + slow


def test_a_colour_has_one_meaning_and_covering_lines_are_thinner(text):
    assert not set(module._SPLITS) & set(module._STAGES)
    assert len(module._SPLITS) == len(set(module._SPLITS)) >= len(named(SETTING))
    assert len(module._STAGES) == len(set(module._STAGES)) > len(Stage)
    lines = report().lines(2)
    widths = [module._thickness(nth, lines) for nth in range(len(lines))]
    assert widths == sorted(set(widths), reverse=True)


def test_labels_do_not_overlap():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 10)
    module._label(axes, [(5 + nth / 50, 5 + nth / 50, f"label {nth}") for nth in range(8)] + [(9.99, 5, "at the edge")])
    figure.draw_without_rendering()
    boxes = [each.get_window_extent() for each in axes.texts]
    assert not [1 for nth, box in enumerate(boxes) for other in boxes[:nth] if box.overlaps(other)]
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)


@needs("chromium")
def test_the_page_works_in_a_browser(text, tmp_path):
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
    assert titled(text, probe, tmp_path) == "plots 4; visible 2; plots 4; line none; wide false; ready yes"


@needs("chromium")
def test_a_page_about_one_width_works_in_a_browser(slow, tmp_path):
    probe = """
    <script>
    document.querySelector("[data-line='1']").click();
    const line = document.querySelector("[id$='-line-1']");
    document.title = `line ${getComputedStyle(line).display}; ready ${document.documentElement.dataset.ready}`;
    </script>"""
    assert titled(slow, probe, tmp_path) == "line none; ready yes"


def titled(text, probe, folder):
    """Return the page's title in a browser, after ``probe`` has set it."""
    path = folder / "report.html"
    path.write_text(text.replace("</body>", probe + "</body>"))
    command = [program("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
               "--disable-background-networking", f"--user-data-dir={folder / 'profile'}",
               "--window-size=1000,900", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    [title] = re.findall(r"<title>(.*?)</title>", done.stdout) or [done.stderr]
    return title
