// A self-checking testbench for the output of `rnic verilog`, in plain Verilog (IEEE 1364-2005), for any simulator.
//
// VECTORS names a file of `round_trip` calls, one for each FPDU. The testbench sends the ULPDU, and compares the output
// with the FPDU. It then receives the FPDU, first unchanged and then with a flipped bit, and expects the ULPDU with the
// verdict 0, then the verdict 2.
//
//   $ iverilog -g2005 -DLANES=4 -DVECTORS='"vectors.vh"' -o tb mpa_tb.v mpa.v && vvp -N tb
//   $ verilator --binary --timing -DLANES=4 -DVECTORS='"vectors.vh"' --top-module mpa_tb mpa_tb.v mpa.v &&
//       obj_dir/Vmpa_tb
//
// The last line is "PASS: N FPDUs". If a test fails, a line begins with "FAIL", and the exit code is not 0.
`default_nettype none
// verilator lint_off WIDTH

module mpa_tb;
  localparam OCTETS = 4 * `LANES;  // octets in a beat
  localparam MOST = 256;           // largest number of octets in a vector

  // Registers and their fields; see docs/registers.md.
  localparam IDENTITY = 10'h000, CONTROL = 10'h00c, CONFIG = 10'h010, TX_MPA_OFFSET = 10'h024, RX_MPA_OFFSET = 10'h028,
             ERROR = 10'h040, RX_CRC_ERRORS = 10'h0ac;

  integer count = 0;  // number of FPDUs
  reg clk = 0;
  reg rst = 1;
  always #5 clk = ~clk;

  reg [8*OCTETS-1:0] tx_tdata;
  reg [OCTETS-1:0] tx_tkeep;
  reg tx_tlast;
  reg [15:0] tx_tuser;
  reg tx_tvalid = 0;
  wire tx_tready;
  wire [8*OCTETS-1:0] out_tdata;
  wire [OCTETS-1:0] out_tkeep;
  wire out_tlast, out_tvalid;
  reg out_tready = 0;
  reg [8*OCTETS-1:0] in_tdata;
  reg [OCTETS-1:0] in_tkeep;
  reg in_tlast;
  reg in_tvalid = 0;
  wire in_tready;
  wire [8*OCTETS-1:0] rx_tdata;
  wire [OCTETS-1:0] rx_tkeep;
  wire [1:0] rx_tuser;
  wire rx_tlast, rx_tvalid;
  reg rx_tready = 0;
  reg [9:0] awaddr, araddr;
  reg [31:0] wdata;
  reg awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
  wire awready, wready, bvalid, arready, rvalid, irq;
  wire [1:0] bresp, rresp;
  wire [31:0] rdata;

  mpa_datapath dut (
    .clk(clk), .rst(rst),
    .s_axis_ulpdu_tdata(tx_tdata), .s_axis_ulpdu_tkeep(tx_tkeep), .s_axis_ulpdu_tlast(tx_tlast),
`ifndef MEASURE
    .s_axis_ulpdu_tuser(tx_tuser),
`endif
    .s_axis_ulpdu_tvalid(tx_tvalid), .s_axis_ulpdu_tready(tx_tready),
    .m_axis_mpa_tdata(out_tdata), .m_axis_mpa_tkeep(out_tkeep), .m_axis_mpa_tlast(out_tlast),
    .m_axis_mpa_tvalid(out_tvalid), .m_axis_mpa_tready(out_tready),
    .s_axis_mpa_tdata(in_tdata), .s_axis_mpa_tkeep(in_tkeep), .s_axis_mpa_tlast(in_tlast),
    .s_axis_mpa_tvalid(in_tvalid), .s_axis_mpa_tready(in_tready),
    .m_axis_ulpdu_tdata(rx_tdata), .m_axis_ulpdu_tkeep(rx_tkeep), .m_axis_ulpdu_tlast(rx_tlast),
    .m_axis_ulpdu_tuser(rx_tuser), .m_axis_ulpdu_tvalid(rx_tvalid), .m_axis_ulpdu_tready(rx_tready),
    .s_axil_awaddr(awaddr), .s_axil_awprot(3'b000), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
    .s_axil_wdata(wdata), .s_axil_wstrb(4'b1111), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
    .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
    .s_axil_araddr(araddr), .s_axil_arprot(3'b000), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
    .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
    .irq(irq)
  );

  task fail(input [8*40-1:0] why);
    begin
      $display("FAIL: %0s, FPDU %0d at %0t", why, count, $time);
      $stop;
    end
  endtask

  // Signals change at the falling edge, so that the result does not depend on a simulator's order of events.
  task write(input [9:0] address, input [31:0] word);
    begin
      @(negedge clk) awaddr = address; wdata = word; awvalid = 1; wvalid = 1; bready = 1;
      while (!(awready && wready)) @(negedge clk);
      @(negedge clk) awvalid = 0; wvalid = 0;
      while (!bvalid) @(negedge clk);
      if (bresp != 0) fail("a write is refused");
      @(negedge clk) bready = 0;
    end
  endtask

  task expect_word(input [9:0] address, input [31:0] word);
    begin
      @(negedge clk) araddr = address; arvalid = 1; rready = 1;
      while (!arready) @(negedge clk);
      @(negedge clk) arvalid = 0;
      while (!rvalid) @(negedge clk);
      if (rdata !== word) begin
        $display("register %h reads %h, not %h", address, rdata, word);
        fail("a register reads wrong");
      end
      @(negedge clk) rready = 0;
    end
  endtask

  // Vectors are written in reading order: the first octet is the leftmost one of `size` octets.
  function [7:0] octet(input [8*MOST-1:0] octets, input integer size, input integer place);
    octet = octets >> (8 * (size - 1 - place));
  endfunction

  integer give_place, take_place, n;

  task send_ulpdu(input [8*MOST-1:0] octets, input integer size);
    for (give_place = 0; give_place < size; give_place = give_place + OCTETS) begin
      @(negedge clk) tx_tdata = 0; tx_tkeep = 0;
      for (n = 0; n < OCTETS && give_place + n < size; n = n + 1) begin
        tx_tdata[8*n+:8] = octet(octets, size, give_place + n);
        tx_tkeep[n] = 1;
      end
      tx_tlast = give_place + OCTETS >= size; tx_tuser = size; tx_tvalid = 1;
      @(posedge clk) while (!tx_tready) @(posedge clk);
      @(negedge clk) tx_tvalid = 0;
    end
  endtask

  task receive_mpa(input [8*MOST-1:0] octets, input integer size);
    for (give_place = 0; give_place < size; give_place = give_place + OCTETS) begin
      @(negedge clk) in_tdata = 0; in_tkeep = 0;
      for (n = 0; n < OCTETS && give_place + n < size; n = n + 1) begin
        in_tdata[8*n+:8] = octet(octets, size, give_place + n);
        in_tkeep[n] = 1;
      end
      in_tlast = give_place + OCTETS >= size; in_tvalid = 1;
      @(posedge clk) while (!in_tready) @(posedge clk);
      @(negedge clk) in_tvalid = 0;
    end
  endtask

  // Receive a packet from either port; if `bad` is set, its octets are not compared, since those of a bad ULPDU vary.
  integer o;
  task take(input from_rx, input [8*MOST-1:0] octets, input integer size, input bad);
    reg valid, last;
    begin
      take_place = 0;
      last = 0;
      while (!last) begin
        @(negedge clk) rx_tready = from_rx; out_tready = !from_rx;
        valid = 0;
        while (!valid) begin
          @(posedge clk) valid = from_rx ? rx_tvalid : out_tvalid;
          last = from_rx ? rx_tlast : out_tlast;
          for (o = 0; valid && o < OCTETS; o = o + 1)
            if (from_rx ? rx_tkeep[o] : out_tkeep[o]) begin
              if (!bad && octet(octets, size, take_place) !== (from_rx ? rx_tdata[8*o+:8] : out_tdata[8*o+:8]))
                fail("an octet is wrong");
              take_place = take_place + 1;
            end else if (!last) fail("tkeep has a gap");
          if (valid && last && from_rx && rx_tuser !== (bad ? 2 : 0)) fail("the verdict is wrong");
        end
        @(negedge clk) rx_tready = 0; out_tready = 0;
      end
      if (take_place != size) fail("the length is wrong");
    end
  endtask

  // Begin a new connection: initiator, client-server model, CRC in both directions; the stream begins at `offset`.
  task connect(input markers, input [31:0] offset);
    begin
      write(CONTROL, 32'h4);
      write(CONFIG, markers ? 32'hf00 : 32'hc00);
      write(TX_MPA_OFFSET, offset);
      write(RX_MPA_OFFSET, offset);
      write(CONTROL, 32'h3);
    end
  endtask

  task round_trip(input markers, input [31:0] offset, input integer ulpdu_size, input [8*MOST-1:0] ulpdu,
                  input integer fpdu_size, input [8*MOST-1:0] fpdu);
    begin
      connect(markers, offset);
      fork
        send_ulpdu(ulpdu, ulpdu_size);
        take(0, fpdu, fpdu_size, 0);
      join
      fork
        receive_mpa(fpdu, fpdu_size);
        take(1, ulpdu, ulpdu_size, 0);
      join
      connect(markers, offset);
      fork
        receive_mpa(fpdu ^ 1, fpdu_size);  // with a bit error in the CRC
        take(1, ulpdu, ulpdu_size, 1);
      join
      repeat (50) @(negedge clk);
      expect_word(RX_CRC_ERRORS, 1);
      expect_word(ERROR, {ulpdu_size[15:0], 16'h0102});
      if (!irq) fail("no interrupt after an error");
      count = count + 1;
    end
  endtask

  initial begin
    repeat (4) @(negedge clk);
    rst = 0;
    expect_word(IDENTITY, 32'h4d504131);
    `include `VECTORS
    $display("PASS: %0d FPDUs", count);
    $finish;
  end

  initial begin
    #10000000 fail("not over in 1,000,000 cycles");
  end
endmodule
