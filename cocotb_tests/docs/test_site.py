"""The documentation as a site: it can be searched when it is opened from a folder, without any network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs, program

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(["make", "--silent", "types"], cwd=ROOT, check=True, timeout=HANG)
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=HANG, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return folder


def test_pages_take_nothing_from_another_host(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=[\"']?([^\"' >]+)", page.read_text())
        assert loaded
        assert not [each for each in loaded if ":" in each], page.name


def test_links_lead_to_files_of_the_site(site):
    for page in {*site.rglob("*.html")} - {site / "404.html"}:  # whose links are those of a server
        for link in re.findall(r"<a\b[^>]*?href=[\"']?([^\"' >#]+)", page.read_text()):
            assert ":" in link or (page.parent / link).exists(), f"{page.name}: {link}"


@needs("chromium")
def test_search_finds_words_in_pages_that_are_opened_from_a_folder(site, tmp_path):
    done = subprocess.run(
        [program("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={tmp_path}", "--virtual-time-budget=60000", "--dump-dom",
         f"{site.as_uri()}/index.html?q=MULPDU"],
        capture_output=True, text=True, timeout=HANG, check=True,
    )  # fmt: skip
    assert re.search(r"\d+ matching documents", done.stdout)
    assert "md-search-result__item" in done.stdout
