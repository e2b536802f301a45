// A self-checking testbench for the module of `rnic verilog --with rnic`: the RNIC at 10.0.0.2 answers an ARP request, and
// then a ping. It is Verilog (IEEE 1364-2005), but for $fatal.
//
// The last line is "PASS: 2 frames". If a test fails, a line begins with "FAIL", and the exit code is not 0.
`default_nettype none
`timescale 1ns/1ps

module rnic_tb;
  localparam OCTETS = 60;  // in a frame without its FCS
  localparam [8*OCTETS-1:0]
    ARP = {48'hffffffffffff, 48'h020000000001, 16'h0806, 64'h0001080006040001,
           48'h020000000001, 32'h0a000001, 48'h000000000000, 32'h0a000002, 144'h0},
    PING = {48'h02000a000002, 48'h020000000001, 16'h0800, 160'h4500002500010000400166d50a0000010a000002,
            64'h08001f1012340001, 72'h6f70656e20726e6963, 72'h0};

  reg clk = 0;
  reg rst = 1;
  reg [9:0] cycle = 0;
  always #10 clk = ~clk;
  always @(posedge clk) cycle <= cycle + 1;

  reg [7:0] rx_tdata = 0;
  reg rx_tlast = 0, rx_tvalid = 0;
  wire [7:0] tx_tdata;
  wire tx_tlast, tx_tvalid;

  // The memory is never used: no connection is open.
  rnic dut (
    .clk(clk), .rst(rst), .tick(cycle == 0), .rx_clk(clk), .tx_clk(clk),
    .s_axis_rx_tdata(rx_tdata), .s_axis_rx_tuser(1'b0), .s_axis_rx_tlast(rx_tlast), .s_axis_rx_tvalid(rx_tvalid),
    .s_axis_rx_tready(),
    .m_axis_tx_tdata(tx_tdata), .m_axis_tx_tlast(tx_tlast), .m_axis_tx_tvalid(tx_tvalid), .m_axis_tx_tready(1'b1),
    .phy_reset(), .mdc(), .mdio_o(), .mdio_oe(), .mdio_i(1'b1),
    .s_axis_samples_tdata(32'h0), .s_axis_samples_tvalid(1'b0), .s_axis_samples_tready(),
    .m_axi_awid(), .m_axi_awaddr(), .m_axi_awlen(), .m_axi_awsize(), .m_axi_awburst(), .m_axi_awlock(), .m_axi_awcache(),
    .m_axi_awprot(),
    .m_axi_awvalid(), .m_axi_awready(1'b0),
    .m_axi_wdata(), .m_axi_wstrb(), .m_axi_wlast(), .m_axi_wvalid(), .m_axi_wready(1'b0),
    .m_axi_bid(1'b0), .m_axi_bresp(2'h0), .m_axi_bvalid(1'b0), .m_axi_bready(),
    .m_axi_arid(), .m_axi_araddr(), .m_axi_arlen(), .m_axi_arsize(), .m_axi_arburst(), .m_axi_arlock(), .m_axi_arcache(),
    .m_axi_arprot(),
    .m_axi_arvalid(), .m_axi_arready(1'b0),
    .m_axi_rid(1'b0), .m_axi_rdata(32'h0), .m_axi_rresp(2'h0), .m_axi_rlast(1'b0), .m_axi_rvalid(1'b0), .m_axi_rready(),
    .memory_fault(), .uart_rx(1'b1), .uart_tx(), .irq(), .active()
  );

  // The FCS of IEEE 802.3: the CRC of a frame that includes its FCS is RESIDUE.
  localparam [31:0] RESIDUE = 32'hdebb20e3;

  function [31:0] crc_of(input [31:0] crc, input [7:0] octet);
    integer n;
    begin
      crc_of = crc ^ {24'h0, octet};
      for (n = 0; n < 8; n = n + 1) crc_of = crc_of[0] ? crc_of >> 1 ^ 32'hedb88320 : crc_of >> 1;
    end
  endfunction

  task fail(input [8*40-1:0] what);
    begin
      $display("FAIL: %0s", what);
      $fatal;
    end
  endtask

  task put(input [7:0] octet, input last);
    begin
      @(negedge clk);
      rx_tdata = octet;
      rx_tlast = last;
      rx_tvalid = 1;
    end
  endtask

  task give(input [8*OCTETS-1:0] frame);
    integer n;
    reg [31:0] crc;
    begin
      for (n = 0; n < 7; n = n + 1) put(8'h55, 0);
      put(8'hd5, 0);
      crc = ~32'h0;
      for (n = OCTETS - 1; n >= 0; n = n - 1) begin
        crc = crc_of(crc, frame[8*n+:8]);
        put(frame[8*n+:8], 0);
      end
      for (n = 0; n < 4; n = n + 1) put(~crc[8*n+:8], n == 3);
      @(negedge clk);
      rx_tvalid = 0;
    end
  endtask

  // Wait for a frame of the RNIC's, and return its octets behind the preamble.
  task take(output [8*OCTETS-1:0] frame);
    integer n;
    reg ends;
    reg [31:0] crc;
    begin
      n = 0;
      ends = 0;
      crc = ~32'h0;
      while (!ends) begin
        @(posedge clk);
        if (tx_tvalid) begin
          if (n < 7 ? tx_tdata != 8'h55 : n == 7 && tx_tdata != 8'hd5) fail("the preamble is wrong");
          if (n >= 8) crc = crc_of(crc, tx_tdata);
          if (n >= 8 && n < 8 + OCTETS) frame[8*(OCTETS-1-(n-8))+:8] = tx_tdata;
          n = n + 1;
          ends = tx_tlast;
        end
      end
      if (n != 8 + OCTETS + 4) fail("the frame is not of 60 octets");
      if (crc != RESIDUE) fail("the FCS is wrong");
    end
  endtask

  reg [8*OCTETS-1:0] answer;
  initial begin
    repeat (10) @(negedge clk);
    rst = 0;
    repeat (4000) @(negedge clk);  // memories are being cleared
    fork
      give(ARP);
      take(answer);
    join
    if (answer[8*18+:8*42] != {48'h020000000001, 48'h02000a000002, 16'h0806, 64'h0001080006040002,
                               48'h02000a000002, 32'h0a000002, 48'h020000000001, 32'h0a000001})
      fail("the ARP reply is wrong");
    fork
      give(PING);
      take(answer);
    join
    if (answer[8*46+:8*14] != {48'h020000000001, 48'h02000a000002, 16'h0800}
        || answer[8*26+:8*8] != {32'h0a000002, 32'h0a000001}
        || answer[8*9+:8*17] != {8'h00, 8'h00, answer[8*22+:16], PING[8*9+:8*13]})
      fail("the echo reply is wrong");
    $display("PASS: 2 frames");
    $finish;
  end

  initial begin
    #10000000 fail("nothing happens");
  end
endmodule
