"""The MPA data path between a host and TCP."""

from drawing import Drawing

TRANSMIT = (
    ("TxModeSwitch", "startup frames pass by"),
    ("Fence", "holds ULPDUs back"),
    ("FpduFramer", "ULPDU_Length, PAD"),
    ("MarkerInserter", "every 512 octets"),
    ("CrcAppender", "CRC-32C"),
)
RECEIVE = (
    ("RtrDetector", "consumes RTRs"),
    ("FpduChecker", "CRC and markers"),
    ("Delineator", "finds FPDUs"),
    ("ChunkPacker", "removes markers"),
    ("RxModeSwitch", "startup frames pass by"),
)
HIGH, STEP = 44, 60
TOP, BOTTOM = 156, 156 + 4 * STEP + HIGH


def draw():
    """Return the drawing."""
    d = Drawing("The MPA data path: ULPDUs of the host become FPDUs in TCP's stream, and FPDUs become ULPDUs", 528)
    d.frame(8, 8, 404, 76, "host", "host software (host_driver)")
    d.box(18, 36, 160, 38, "host", "application")
    d.box(188, 36, 214, 38, "host", "connections", "Request and Reply")
    d.frame(8, 124, 404, BOTTOM + 12 - 124, "device", "device (rtl/mpa)", indent=205)
    for x, blocks, way in ((30, TRANSMIT, 1), (220, RECEIVE, -1)):
        for nth, (name, text) in enumerate(blocks):
            y = TOP + nth * STEP
            d.box(x, y, 170, HIGH, "device", name, text)
            if nth:
                d.arrow(*[(x + 85, y - STEP + HIGH), (x + 85, y)][::way])
    # Stream mode passes all other blocks.
    d.arrow((30, TOP + 22), (19, TOP + 22), (19, BOTTOM + 42), dashed=True)
    d.arrow((390, BOTTOM - 22), (401, BOTTOM - 22), (401, TOP - 72), dashed=True)
    # The first FPDU of the peer opens the fence.
    d.arrow((220, TOP + 30), (210, TOP + 30), (210, TOP + STEP + 22), (200, TOP + STEP + 22))
    d.arrow((60, 84), (60, TOP))
    d.text(68, 108, "ULPDUs")
    d.arrow((365, TOP), (365, 84))
    d.text(307, 108, "ULPDUs")
    d.arrow((205, 84), (205, 124), both=True)
    d.text(213, 108, "registers")
    d.box(8, BOTTOM + 42, 404, HIGH, "other", "TCP", "the kernel's socket, or the TCP engine")
    d.arrow((115, BOTTOM), (115, BOTTOM + 42))
    d.text(123, BOTTOM + 32, "MPA stream")
    d.arrow((305, BOTTOM + 42), (305, BOTTOM))
    d.text(220, BOTTOM + 32, "MPA stream")
    return d
