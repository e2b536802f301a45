"""Amaranth's platform for Gowin, adapted to current nextpnr."""

from amaranth.vendor import GowinPlatform

__all__ = ["HimbaechelPlatform"]


class HimbaechelPlatform(GowinPlatform):
    """A mixin for a board's platform that calls nextpnr-himbaechel instead of nextpnr-gowin, which no longer exists."""

    chip = "GW2A-18C"  # name in nextpnr and Apicula

    required_tools = ["yosys", "nextpnr-himbaechel", "gowin_pack"]
    command_templates = [
        GowinPlatform._apicula_command_templates[0],
        r"""
        {{invoke_tool("nextpnr-himbaechel")}}
            {{quiet("--quiet")}}
            {{get_override("nextpnr_opts")|options}}
            --log {{name}}.tim
            --device {{platform.part}}
            --vopt family={{platform.chip}}
            --vopt cst={{name}}.cst
            --freq {{"%.6f"|format(platform.default_clk_frequency / 1000000)}}
            --json {{name}}.syn.json
            --write {{name}}.pnr.json
        """,
        r"""
        {{invoke_tool("gowin_pack")}}
            -d {{platform.chip}}
            -o {{name}}.fs
            {{get_override("gowin_pack_opts")|options}}
            {{name}}.pnr.json
        """,
    ]
