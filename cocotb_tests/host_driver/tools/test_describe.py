"""The register map in other formats matches the original, as read by independent compilers."""

import html
import subprocess

import pytest
from peakrdl_cheader.exporter import CHeaderExporter
from peakrdl_html import HTMLExporter
from systemrdl import RDLCompiler
from systemrdl.node import FieldNode

from open_rnic.host_driver.tools.cli import run
from open_rnic.host_driver.tools.describe import PAGES
from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.mac.registers import Speed
from open_rnic.rtl.rdma.registers import Command, Right
from open_rnic.rtl.registers import MAP, Access, Cause, EventKind, Verdict
from open_rnic.rtl.tcp import words as tcp_words

pages = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def written(option, folder, capsys, page=PAGES["mpa"]):
    assert run(["registers", *page.option.split(), option]) == 0
    path = folder / "registers"
    path.write_text(capsys.readouterr().out)
    return path


@pages
def test_the_c_header_matches_the_register_map(page, tmp_path, capsys):
    header = written("--c", tmp_path, capsys, page)
    header.rename(tmp_path / "registers.h")
    prefix = page.prefix
    has_version = any(register.name == "VERSION" for register in page.registers)
    said = [f"RNIC_GET(0x00020000u, {prefix}_VERSION_MAJOR) == 2"] if has_version else []
    if page is PAGES["mpa"]:
        said += [f"RNIC_EVENT_KIND_{kind.name} == {kind.value}" for kind in EventKind]
        said += [f"RNIC_CAUSE_{cause.name} == {cause.value}" for cause in Cause]
        said += ["RNIC_PUT(3u, RNIC_CONFIG_RTR_SEND) == 12"]
    else:
        kinds = {"RNIC_TCP": (tcp_words.Command, tcp_words.Reason), "RNIC_RDMA": (Command, Right, Opcode),
                 "RNIC_MAC": (Speed,), "RNIC_SAMPLE": (), "RNIC_SIGNAL": (), "RNIC_TOP": (),
                 "RNIC_STREAM": (Verdict,)}[prefix]
        said += [f"{prefix}_{kind.__name__.upper()}_{each.name} == {each.value}" for kind in kinds for each in kind]
    for register in page.registers:
        said.append(f"{prefix}_{register.name} == {register.address}")
        said.append(f"{prefix}_{register.name}_AT_RESET == {register.reset}u")
        for field in register.fields:
            name = f"{prefix}_{register.name}_{field.name.upper()}"
            said += [f"{name}_MASK == {field.mask}u", f"{name}_MASK >> {name}_SHIFT == {(1 << field.width) - 1}u"]
    checks = "".join(f'_Static_assert({each}, "{each}");\n' for each in said)
    (tmp_path / "check.c").write_text(f'#include "registers.h"\n#include "registers.h"\n{checks}')
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "check.c"],
                   cwd=tmp_path, check=True)  # fmt: skip


@pages
def test_the_systemrdl_matches_the_register_map(page, tmp_path, capsys):
    compiler = RDLCompiler()
    compiler.compile_file(str(written("--systemrdl", tmp_path, capsys, page)))
    nodes = {node.inst_name: node for node in compiler.elaborate().top.registers()}
    registers = {each.name: each for each in page.registers}
    assert {name: node.absolute_address for name, node in nodes.items()} == {
        name: each.address for name, each in registers.items()
    }
    for name, node in nodes.items():
        fields = [child for child in node.children() if isinstance(child, FieldNode)]
        due = registers[name].fields
        assert {
            (each.inst_name, each.lsb, each.width, each.get_property("reset"), each.is_sw_writable) for each in fields
        } == {(each.name, each.lsb, each.width, each.reset, each.access is not Access.RO) for each in due}
    assert not any(node.has_sw_writable for name, node in nodes.items() if name == "IDENTITY")
    if page is not PAGES["mpa"]:
        return
    [kind] = [each for each in nodes["EVENT"].fields() if each.inst_name == "kind"]
    assert {each.name: each.value for each in kind.get_property("encode")} == {
        each.name: each.value for each in EventKind
    }
    assert nodes["EVENT"].has_sw_readable


def test_the_c_header_of_peakrdl_matches_the_register_map(tmp_path, capsys):
    compiler = RDLCompiler()
    compiler.compile_file(str(written("--systemrdl", tmp_path, capsys)))
    CHeaderExporter().export(compiler.elaborate().top, str(tmp_path / "peakrdl.h"))
    said = []
    for register in MAP:
        said.append(f"offsetof(rnic_t, {register.name}) == {register.address}")
        for field in register.fields:
            name = f"RNIC__{register.name}__{field.name.upper()}"
            said += [f"{name}_bm == {field.mask}u", f"{name}_bp == {field.lsb}", f"{name}_reset == {field.reset}u"]
    checks = "".join(f'_Static_assert({each}, "{each}");\n' for each in said)
    (tmp_path / "check.c").write_text(f'#include <stddef.h>\n#include "peakrdl.h"\n{checks}')
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "check.c"], cwd=tmp_path, check=True)


def test_the_pages_of_peakrdl_have_all_descriptions(tmp_path, capsys):
    compiler = RDLCompiler()
    compiler.compile_file(str(written("--systemrdl", tmp_path, capsys)))
    HTMLExporter().export(compiler.elaborate().top, str(tmp_path / "html"))
    pages = "".join(path.read_text() for path in (tmp_path / "html").rglob("*.html"))
    for register in MAP:
        assert html.escape(register.doc, quote=False) in html.unescape(pages).replace("<p>", "")
        assert all(field.name in pages for field in register.fields)
    assert "RTR_RECEIVED" in pages


@pytest.mark.parametrize("both", [("--c", "--markdown"), ("--c", "--systemrdl")])
def test_only_one_output_format_is_accepted(both, capsys):
    assert run(["registers", *both]) == 2
    assert "only one of" in capsys.readouterr().err
