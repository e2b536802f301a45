// A testbench of your own for the module of `rnic verilog`, in SystemVerilog alone: it receives what it transmits.
//
//   $ rnic verilog --lanes 4 -o mpa.v
//   $ iverilog -g2012 -s own_testbench -o tb own_testbench.sv mpa.v && vvp -N tb
//   $ verilator --binary --timing --top-module own_testbench own_testbench.sv mpa.v && obj_dir/Vown_testbench
//
// The last line is "PASS". An error is one line, and the exit code is not 0.

module own_testbench;
  localparam int OCTETS = 16;                                       // in a beat of 4 lanes
  localparam bit [9:0] CONTROL = 'h00c, CONFIG = 'h010, RX_CRC_ERRORS = 'h0ac;  // docs/registers.md has all
  localparam bit [1:0] GOOD = 0, CRC_ERROR = 2;                     // verdicts on a received ULPDU

  logic clk = 0, rst = 1;
  always #5 clk = !clk;

  logic [8*OCTETS-1:0] tx_tdata, mpa_tdata, rx_tdata, flip = 0;
  logic [OCTETS-1:0] tx_tkeep, mpa_tkeep, rx_tkeep;
  logic [15:0] tx_tuser;
  logic [1:0] rx_tuser, bresp, rresp;
  logic tx_tlast, tx_tvalid = 0, tx_tready, mpa_tlast, mpa_tvalid, mpa_tready, rx_tlast, rx_tvalid, rx_tready = 0;
  logic [9:0] awaddr, araddr;
  logic [31:0] wdata, rdata;
  logic awvalid = 0, awready, wvalid = 0, wready, bvalid, bready = 0, arvalid = 0, arready, rvalid, rready = 0, irq;

  mpa_datapath dut (
    .clk(clk), .rst(rst), .irq(irq),
    .s_axis_ulpdu_tdata(tx_tdata), .s_axis_ulpdu_tkeep(tx_tkeep), .s_axis_ulpdu_tlast(tx_tlast),
    .s_axis_ulpdu_tuser(tx_tuser), .s_axis_ulpdu_tvalid(tx_tvalid), .s_axis_ulpdu_tready(tx_tready),
    .m_axis_mpa_tdata(mpa_tdata), .m_axis_mpa_tkeep(mpa_tkeep), .m_axis_mpa_tlast(mpa_tlast),
    .m_axis_mpa_tvalid(mpa_tvalid), .m_axis_mpa_tready(mpa_tready),
    .s_axis_mpa_tdata(mpa_tdata ^ flip), .s_axis_mpa_tkeep(mpa_tkeep), .s_axis_mpa_tlast(mpa_tlast),
    .s_axis_mpa_tvalid(mpa_tvalid), .s_axis_mpa_tready(mpa_tready),
    .m_axis_ulpdu_tdata(rx_tdata), .m_axis_ulpdu_tkeep(rx_tkeep), .m_axis_ulpdu_tlast(rx_tlast),
    .m_axis_ulpdu_tuser(rx_tuser), .m_axis_ulpdu_tvalid(rx_tvalid), .m_axis_ulpdu_tready(rx_tready),
    .s_axil_awaddr(awaddr), .s_axil_awprot(3'b000), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
    .s_axil_wdata(wdata), .s_axil_wstrb(4'b1111), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
    .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
    .s_axil_araddr(araddr), .s_axil_arprot(3'b000), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
    .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready)
  );

  // Signals change at the falling edge, so that the result does not depend on a simulator's order of events.
  task automatic write(input [9:0] register, input [31:0] word);
    @(negedge clk) begin awaddr = register; wdata = word; awvalid = 1; wvalid = 1; bready = 1; end
    while (!(awready && wready)) @(negedge clk);
    @(negedge clk) begin awvalid = 0; wvalid = 0; end
    while (!bvalid) @(negedge clk);
    if (bresp != 0) $fatal(1, "register %h: the write is refused", register);
    @(negedge clk) bready = 0;
  endtask

  task automatic read(input [9:0] register, output [31:0] word);
    @(negedge clk) begin araddr = register; arvalid = 1; rready = 1; end
    while (!arready) @(negedge clk);
    @(negedge clk) arvalid = 0;
    while (!rvalid) @(negedge clk);
    word = rdata;
    @(negedge clk) rready = 0;
  endtask

  // A ULPDU counts up from its first octet.
  task automatic send(input int size, input int first);
    for (int place = 0; place < size; place += OCTETS) begin
      for (int n = 0; n < OCTETS; n++) begin
        tx_tdata[8*n+:8] = 8'(first + place + n);
        tx_tkeep[n] = place + n < size;
      end
      tx_tlast = place + OCTETS >= size;
      tx_tuser = 16'(size);
      tx_tvalid = 1;
      @(posedge clk);
      while (!tx_tready) @(posedge clk);
      @(negedge clk) tx_tvalid = 0;
    end
  endtask

  task automatic receive(input int size, input int first, input [1:0] verdict);
    int place = 0;
    bit last = 0;
    rx_tready = 1;
    while (!last) begin
      @(posedge clk);
      if (rx_tvalid) begin
        for (int n = 0; n < OCTETS; n++)
          if (rx_tkeep[n]) begin
            if (verdict == GOOD && rx_tdata[8*n+:8] !== 8'(first + place)) $fatal(1, "octet %0d is wrong", place);
            place++;
          end
        last = rx_tlast;
        if (last && rx_tuser !== verdict) $fatal(1, "the verdict is %0d, not %0d", rx_tuser, verdict);
      end
    end
    @(negedge clk) rx_tready = 0;
    if (verdict == GOOD && place != size) $fatal(1, "%0d octets came, not %0d", place, size);
  endtask

  task automatic round_trip(input int size, input int first, input [1:0] verdict);
    fork
      send(size, first);
      receive(size, first, verdict);
    join
  endtask

  logic [31:0] errors;
  initial begin
    repeat (4) @(negedge clk);
    rst = 0;
    write(CONFIG, 'hf00);  // markers and CRCs both ways, without the rules of RDMAP
    write(CONTROL, 'h3);   // tx_enable and rx_enable
    round_trip(1, 7, GOOD);
    round_trip(16, 0, GOOD);
    round_trip(600, 99, GOOD);
    flip[64] = 1;          // a bit of each beat
    round_trip(40, 1, CRC_ERROR);
    read(RX_CRC_ERRORS, errors);
    if (errors != 1) $fatal(1, "RX_CRC_ERRORS is %0d", errors);
    $display("PASS");
    $finish;
  end

  initial begin
    #1000000;
    $fatal(1, "not over in 100,000 cycles");
  end
endmodule
