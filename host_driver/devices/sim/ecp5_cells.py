"""Models of cells of the ECP5, for simulations of netlists, where those of Yosys are missing or slow."""

from string import Template

__all__ = ["CELLS"]

# The logic of a port of block RAM, behind its address, beside the other port.
_PORT = Template("""\
  wire writes_${this} = CE${this} & WE${this};
  wire [35:0] mask_${this} = mask(DATA_WIDTH_${this}, at_${this});
  wire [35:0] data_${this} = copies(DATA_WIDTH_${this}, given_${this});
  wire collides_${this} = writes_${other} & at_${other}[13:5] == at_${this}[13:5];
  wire [35:0] word_${this} = mem[at_${this}[13:5]] ^ (collides_${this} ? mask_${other} : 36'b0);
  wire through_${this} = WE${this} & WRITEMODE_${this} == "WRITETHROUGH";
  reg [35:0] out_${this} = 0;
  always @(posedge CLK${this})
    if (RST${this}) out_${this} <= 0;
    else if (CE${this} & ~(WE${this} & WRITEMODE_${this} == "NORMAL"))
      out_${this} <= part(DATA_WIDTH_${this}, at_${this},
        through_${this} ? (word_${this} & ~mask_${this}) | (data_${this} & mask_${this}) : word_${this});
  always @(posedge CLK${this})
    for (n = 0; n < 36; n = n + 1)
      if (writes_${this} & mask_${this}[n]) mem[at_${this}[13:5]][n] <= data_${this}[n];""")

_CELLS = r"""
module LUT4 (input A, B, C, D, output Z);
  parameter [15:0] INIT = 0;
  \$lut #(.WIDTH(4), .LUT(INIT)) lut (.A({D, C, B, A}), .Y(Z));
endmodule

module LUT2 (input A, B, output Z);
  parameter [3:0] INIT = 0;
  \$lut #(.WIDTH(2), .LUT(INIT)) lut (.A({B, A}), .Y(Z));
endmodule

// Without asynchronous sets and resets, which no RNIC has.
module TRELLIS_FF (input CLK, LSR, CE, DI, M, output reg Q);
  parameter GSR = "ENABLED", CEMUX = "1", CLKMUX = "CLK", LSRMUX = "LSR", SRMODE = "LSR_OVER_CE", REGSET = "RESET";
  parameter LSRMODE = "LSR";
  wire clock = CLK ^ (CLKMUX == "INV");
  wire reset = LSR ^ (LSRMUX == "INV");
  wire enable = CEMUX == "1" | (CEMUX != "0" & (CE ^ (CEMUX == "INV")));
  initial Q = REGSET == "SET";
  always @(posedge clock)
    if (reset) Q <= REGSET == "SET";
    else if (enable) Q <= DI;
endmodule

// Block RAM: 512 words of 4 octets of 9 bits. A port of 1, 2 or 4 bits has the low 8 of an octet. The data sheet leaves
// open what a port reads of the bits that the other one writes in the same cycle: here, their inverse. Both ports have
// the same clock; their outputs have no second register.
module DP16KD (
  input
    DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1,
    DIA0, ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0, CEA, OCEA, CLKA,
    WEA, RSTA, CSA2, CSA1, CSA0,
  output
    DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0,
  input
    DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1,
    DIB0, ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0, CEB, OCEB, CLKB,
    WEB, RSTB, CSB2, CSB1, CSB0,
  output
    DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
  parameter DATA_WIDTH_A = 18, REGMODE_A = "NOREG", CSDECODE_A = "0b000", WRITEMODE_A = "NORMAL", CLKAMUX = "CLKA";
  parameter DATA_WIDTH_B = 18, REGMODE_B = "NOREG", CSDECODE_B = "0b000", WRITEMODE_B = "NORMAL", CLKBMUX = "CLKB";
  parameter RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC", GSR = "ENABLED", WID = 0, INIT_DATA = "STATIC";
  parameter [319:0]
    INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0, INITVAL_04 = 0, INITVAL_05 = 0, INITVAL_06 = 0,
    INITVAL_07 = 0, INITVAL_08 = 0, INITVAL_09 = 0, INITVAL_0A = 0, INITVAL_0B = 0, INITVAL_0C = 0, INITVAL_0D = 0,
    INITVAL_0E = 0, INITVAL_0F = 0, INITVAL_10 = 0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0, INITVAL_14 = 0,
    INITVAL_15 = 0, INITVAL_16 = 0, INITVAL_17 = 0, INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A = 0, INITVAL_1B = 0,
    INITVAL_1C = 0, INITVAL_1D = 0, INITVAL_1E = 0, INITVAL_1F = 0, INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 = 0,
    INITVAL_23 = 0, INITVAL_24 = 0, INITVAL_25 = 0, INITVAL_26 = 0, INITVAL_27 = 0, INITVAL_28 = 0, INITVAL_29 = 0,
    INITVAL_2A = 0, INITVAL_2B = 0, INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E = 0, INITVAL_2F = 0, INITVAL_30 = 0,
    INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0, INITVAL_34 = 0, INITVAL_35 = 0, INITVAL_36 = 0, INITVAL_37 = 0,
    INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A = 0, INITVAL_3B = 0, INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0,
    INITVAL_3F = 0;
  localparam [64 * 320 - 1:0] INIT = {
    INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38, INITVAL_37,
    INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E,
    INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26, INITVAL_25,
    INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20, INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C,
    INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13,
    INITVAL_12, INITVAL_11, INITVAL_10, INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A,
    INITVAL_09, INITVAL_08, INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01,
    INITVAL_00
  };

  // The bits of a word that a port writes, at this address.
  function [35:0] mask (input integer width, input [13:0] at);
    case (width)
      1: mask = 36'b1 << (9 * at[4:3] + at[2:0]);
      2: mask = 36'b11 << (9 * at[4:3] + 2 * at[2:1]);
      4: mask = 36'b1111 << (9 * at[4:3] + 4 * at[2]);
      9: mask = 36'h1ff << (9 * at[4:3]);
      18: mask = {18'b0, {9{at[1]}}, {9{at[0]}}} << (18 * at[4]);
      default: mask = {{9{at[3]}}, {9{at[2]}}, {9{at[1]}}, {9{at[0]}}};
    endcase
  endfunction

  // What a port writes, at all of its addresses in a word.
  function [35:0] copies (input integer width, input [35:0] given);
    case (width)
      1: copies = {36{given[0]}};
      2: copies = {4{1'b0, {4{given[1:0]}}}};
      4: copies = {4{1'b0, {2{given[3:0]}}}};
      9: copies = {4{given[8:0]}};
      18: copies = {2{given[17:0]}};
      default: copies = given;
    endcase
  endfunction

  // The bits of a word that a port reads.
  function [35:0] part (input integer width, input [13:0] at, input [35:0] word);
    case (width)
      1: part = word >> (9 * at[4:3] + at[2:0]) & 36'b1;
      2: part = word >> (9 * at[4:3] + 2 * at[2:1]) & 36'b11;
      4: part = word >> (9 * at[4:3] + 4 * at[2]) & 36'b1111;
      9: part = word >> (9 * at[4:3]) & 36'h1ff;
      18: part = word >> (18 * at[4]) & 36'h3ffff;
      default: part = word;
    endcase
  endfunction

  reg [35:0] mem [0:511];
  integer n;
  initial for (n = 0; n < 512; n = n + 1) mem[n] = {INIT[40 * n + 20 +: 18], INIT[40 * n +: 18]};

  wire [35:0] given_A = {
    DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1,
    DIB0, DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2,
    DIA1, DIA0
  };
  wire [35:0] given_B = {
    18'b0, DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9,
    DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0
  };

  wire [13:0] at_A = {
    ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0
  };
$PORT_A$

  wire [13:0] at_B = {
    ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0
  };
$PORT_B$

  // A port of 36 bits has the outputs of both.
  assign {
    DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1,
    DOB0, DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2,
    DOA1, DOA0
  } = DATA_WIDTH_B == 36 ? out_B : {out_B[17:0], out_A[17:0]};
endmodule
"""

CELLS = _CELLS.replace("$PORT_A$", _PORT.substitute(this="A", other="B")).replace(
    "$PORT_B$", _PORT.substitute(this="B", other="A")
)
