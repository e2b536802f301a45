"""The register map in other formats matches the original, as read by independent compilers."""

import html
import subprocess

import pytest
from peakrdl_cheader.exporter import CHeaderExporter
from peakrdl_html import HTMLExporter
from systemrdl import RDLCompiler
from systemrdl.node import FieldNode

from open_rnic.host_driver.tools.cli import run
from open_rnic.rtl.registers import BY_NAME, MAP, Access, Cause, EventKind


def written(option, folder, capsys):
    assert run(["registers", option]) == 0
    path = folder / "registers"
    path.write_text(capsys.readouterr().out)
    return path


def test_the_c_header_matches_the_register_map(tmp_path, capsys):
    header = written("--c", tmp_path, capsys)
    header.rename(tmp_path / "registers.h")
    said = [f"RNIC_EVENT_KIND_{kind.name} == {kind.value}" for kind in EventKind]
    said += [f"RNIC_CAUSE_{cause.name} == {cause.value}" for cause in Cause]
    said += ["RNIC_GET(0x00020000u, RNIC_VERSION_MAJOR) == 2", "RNIC_PUT(3u, RNIC_CONFIG_RTR_SEND) == 12"]
    for register in MAP:
        said.append(f"RNIC_{register.name} == {register.address}")
        said.append(f"RNIC_{register.name}_AT_RESET == {register.reset}u")
        for field in register.fields:
            name = f"RNIC_{register.name}_{field.name.upper()}"
            said += [f"{name}_MASK == {field.mask}u", f"{name}_MASK >> {name}_SHIFT == {(1 << field.width) - 1}u"]
    checks = "".join(f'_Static_assert({each}, "{each}");\n' for each in said)
    (tmp_path / "check.c").write_text(f'#include "registers.h"\n#include "registers.h"\n{checks}')
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "check.c"],
                   cwd=tmp_path, check=True)  # fmt: skip


def test_the_systemrdl_matches_the_register_map(tmp_path, capsys):
    compiler = RDLCompiler()
    compiler.compile_file(str(written("--systemrdl", tmp_path, capsys)))
    nodes = {node.inst_name: node for node in compiler.elaborate().top.registers()}
    assert {name: node.absolute_address for name, node in nodes.items()} == {each.name: each.address for each in MAP}
    for name, node in nodes.items():
        fields = [child for child in node.children() if isinstance(child, FieldNode)]
        assert {
            (each.inst_name, each.lsb, each.width, each.get_property("reset"), each.is_sw_writable) for each in fields
        } == {
            (each.name, each.lsb, each.width, each.reset, each.access is not Access.RO) for each in BY_NAME[name].fields
        }
    [kind] = [each for each in nodes["EVENT"].fields() if each.inst_name == "kind"]
    assert {each.name: each.value for each in kind.get_property("encode")} == {
        each.name: each.value for each in EventKind
    }
    assert nodes["EVENT"].has_sw_readable
    assert not nodes["IDENTITY"].has_sw_writable


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
