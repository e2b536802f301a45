"""Hooks of MkDocs: pages of the site that are not in docs: README.md as index, and files that pages link to.

A link to a file of the source leads to a page with its text, so that the site needs no host of the source.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LANGUAGES = {".py": "python", ".c": "c", ".toml": "toml", ".j2": "jinja", ".json": "json"}


def _address(path):
    """Of a file of the repository, in the site; None for what is in neither."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md" if (ROOT / path).exists() else None


def _linked(text, here):
    """``text`` of the file ``here`` with links as the site has them, and the files of the source that they lead to."""
    sources = set()

    def link(match):
        target = match[1]
        if ":" in target:
            return target
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        address = _address(path)
        if address is None:
            return target  # which MkDocs complains of
        if address.startswith("source/"):
            sources.add(path)
        return posixpath.relpath(address, posixpath.dirname(_address(here)) or ".")

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts), sources


def on_files(files, config):
    """Add pages."""
    sources = set()
    for path, address in PAGES.items():
        text, more = _linked((ROOT / path).read_text(), path)
        files.append(File.generated(config, address, content=text))
        sources |= more
    for page in sorted((ROOT / "docs").glob("*.md")):
        sources |= _linked(page.read_text(), f"docs/{page.name}")[1]
    for path in sorted(sources):
        file = ROOT / path
        if file.is_dir():
            names = sorted(each.name for each in file.iterdir() if not each.name.startswith(("_", ".")))
            text = "\n".join(f"- `{name}`" for name in names)
        else:
            text = f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n````"
        # Code is no text to be found by words; its names are on pages that link to it.
        front = "---\nsearch:\n  exclude: true\n---\n"
        files.append(File.generated(config, f"source/{path}.md", content=f"{front}\n# {path}\n\n{text}\n"))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links to the source into links to those pages."""
    uri = page.file.src_uri
    return markdown if uri.startswith("source/") or uri in PAGES.values() else _linked(markdown, f"docs/{uri}")[0]
