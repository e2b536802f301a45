"""Four splits of the work for a message that is sent, with the times that its octets cross the host's link."""

from itertools import pairwise

from drawing import Drawing

from open_rnic.host_driver.tools.split.stages import MPA, RDMA, TCP, TRANSMIT, Side, Split

SPLITS = ((frozenset(), "nothing"), (MPA, "MPA"), (MPA | TCP, "MPA, TCP"), (RDMA | MPA | TCP, "all"))
LEFT, WIDE, TOP, HIGH = 138, 66, 76, 28


def draw():
    """Return the drawing."""
    d = Drawing("Which stages of a message that is sent are done by the host, and which by the device, in four splits",
                TOP + HIGH * len(TRANSMIT) + 92)  # fmt: skip
    d.text(LEFT + 2 * (WIDE + 4), 22, "what the device does", "title middle")
    d.text(10, TOP - 14, "memory, at the host")
    for nth, stage in enumerate(TRANSMIT):
        d.text(10, TOP + HIGH * nth + 19, stage)
    for column, (stages, name) in enumerate(SPLITS):
        split = Split(stages)
        x = LEFT + column * (WIDE + 4)
        d.text(x + WIDE / 2, 46, name, "small middle")
        for nth, stage in enumerate(TRANSMIT):
            d.box(x, TOP + HIGH * nth, WIDE, HIGH - 3, split.side(stage).value, split.side(stage).value)
        # Octets begin in memory, at the host's end of the link, and end at the device's, on the wire.
        sides = [Side.HOST, *map(split.side, TRANSMIT), Side.DEVICE]
        crossings = sum(one is not other for one, other in pairwise(sides))
        d.text(x + WIDE / 2, TOP + HIGH * len(TRANSMIT) + 56, str(crossings), "title middle")
    bottom = TOP + HIGH * len(TRANSMIT)
    d.text(10, bottom + 20, "wire, at the device")
    d.text(10, bottom + 48, "crossings of")
    d.text(10, bottom + 64, "the host's link")
    return d
