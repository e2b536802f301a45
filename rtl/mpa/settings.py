"""The settings of a connection that blocks need, with the names and values of register CONFIG."""

from amaranth.lib import data

from open_rnic.rtl.registers import Model, Role, Rtr

__all__ = ["RtrSettings", "SendSettings"]


class SendSettings(data.Struct):
    """The settings of the fence; ``markers`` and ``crc`` are those of transmit."""

    role: Role
    model: Model
    rtr_send: Rtr
    rdmap: 1
    markers: 1
    crc: 1


class RtrSettings(data.Struct):
    """The settings by which an RTR is recognised."""

    role: Role
    model: Model
    rtr_accept: 3
    permissive: 1
