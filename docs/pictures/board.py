"""A board on a cable with Linux: stock programs at one end, the board's memory at the other."""

from drawing import Drawing

LINUX = (
    ("any RDMA program", "rping, ib_write_bw", "host"),
    ("verbs", "librdmacm, libibverbs", "host"),
    ("siw", "the kernel's iWARP", "host"),
    ("TCP/IP", "of the kernel", "host"),
    ("network card", "any", "other"),
)
BOARD = (
    ("memory", "of the FPGA", "device"),
    ("RDMA engine", "DDP, RDMAP", "device"),
    ("MPA", "markers, CRC", "device"),
    ("TCP/IP", "RTL", "device"),
    ("Ethernet port", "MAC, PHY", "device"),
)
HIGH, STEP, TOP = 46, 60, 40


def draw():
    """Return the drawing."""
    d = Drawing("A board on a cable with Linux: stock RDMA programs read and write the board's memory", 432)
    d.frame(8, 8, 200, 346, "host", "PC with Linux")
    d.frame(252, 8, 160, 346, "device", "board")
    for x, width, layers in ((18, 180, LINUX), (262, 140, BOARD)):
        for nth, (name, text, kind) in enumerate(layers):
            y = TOP + nth * STEP
            d.box(x, y, width, HIGH, kind, name, text)
            if nth:
                d.arrow((x + width / 2, y - STEP + HIGH), (x + width / 2, y), both=True)
    wire = TOP + 4 * STEP + HIGH / 2
    d.arrow((198, wire), (262, wire), both=True)
    d.text(230, wire - 8, "cable", "small middle")
    # One command operates the board; it may run on another PC.
    d.box(8, 376, 404, HIGH, "host", "rnic memory, rnic rping, rnic samples",
          "operates the board over UDP: registers, connections")  # fmt: skip
    d.arrow((332, 376), (332, 354), dashed=True)
    return d
