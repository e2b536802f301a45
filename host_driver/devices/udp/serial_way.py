"""The UART of a whole RNIC, which carries the same frames as its UDP: for a board that the network does not reach."""

from __future__ import annotations

from collections.abc import Callable

from open_rnic.host_driver.devices.serial.port import Port

__all__ = ["SerialWay"]


class SerialWay:
    """A way to a board (:class:`.Datagrams`) through a serial port. Raises DeviceError if the port cannot be opened."""

    def __init__(self, name: str, baud: int) -> None:
        self.place = f"{name} at {baud} baud"
        self.trouble = ""
        self.receive: Callable[[bytes], None] = lambda octets: None
        self._port = Port(name, baud, lambda octets: self.receive(octets), self._lost)

    def send(self, octets: bytes) -> None:
        """See Datagrams."""
        if not self.trouble:
            self._port.write(octets)

    def close(self) -> None:
        """See Datagrams."""
        self._port.close()

    def _lost(self, why: str) -> None:
        self.trouble = why
