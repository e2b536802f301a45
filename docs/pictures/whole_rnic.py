"""The whole RNIC, from the wire to memory."""

from drawing import Drawing

PATH = (
    ("EthernetPort", "MAC, PHY, FIFOs between clocks"),
    ("Net", "ARP, IPv4, ICMP echo, UDP"),
    ("TcpEngine", "connections, retransmission, rings"),
    ("Watcher", "whole FPDUs, by connection"),
    ("SharedMpa", "FPDUs, markers, CRCs"),
    ("RdmaEngine", "STags, placement, RDMA Reads"),
    ("BlockMemory", "registered memory"),
)
HIGH, STEP, TOP = 46, 64, 72


def draw():
    """Return the drawing."""
    names = [name for name, _ in PATH]
    middle = {name: TOP + nth * STEP + HIGH / 2 for nth, name in enumerate(names)}
    d = Drawing("The whole RNIC: from the Ethernet cable through TCP, MPA and RDMA to registered memory", 524)
    d.frame(8, 38, 404, 478, "device", "WholeRnic (rtl/rnic)")
    d.text(237, 16, "Ethernet cable")
    d.arrow((225, 6), (225, TOP), both=True)
    for nth, (name, text) in enumerate(PATH):
        y = TOP + nth * STEP
        d.box(20, y, 250, HIGH, "device", name, text)
        if nth:
            d.arrow((145, y - STEP + HIGH), (145, y), both=True)
    # The host reaches all registers over the same cable.
    d.box(304, middle["Net"] - 23, 98, HIGH, "device", "Link", "to the host")
    d.arrow((270, middle["Net"]), (304, middle["Net"]), both=True)
    d.text(274, middle["Net"] - 30, "UDP")
    d.line((353, middle["Net"] + 23), (353, middle["BlockMemory"]))
    for name in ("TcpEngine", "SharedMpa", "RdmaEngine", "BlockMemory"):
        d.arrow((353, middle[name]), (270, middle[name]))
    for nth, line in enumerate(("registers,", "events,", "startup", "frames")):
        d.text(284, middle["TcpEngine"] + 22 + 17 * nth, line)
    return d
