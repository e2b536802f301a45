# vivado -mode batch -source vivado.tcl
read_verilog mpa_datapath.v
synth_design -top mpa_datapath -part xc7a100tcsg324-1 -mode out_of_context
create_clock -name clk -period 8.0 [get_ports clk]
report_utilization
report_timing_summary
