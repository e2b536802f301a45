"""Serial ports: opened by pyserial, then read and written by the event loop whenever they are ready."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import termios
from collections.abc import Callable

import serial

from open_rnic.host_driver.device import DeviceError

_CHUNK = 1 << 16


class Port:
    """An open serial port. ``received`` is called with received octets, ``lost`` once if the port disappears."""

    def __init__(self, name: str, baud: int, received: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        self.name = name
        self._received = received
        self._lost = lost
        self._unsent = bytearray()
        self._writing = False
        self._port = _open(name, baud)
        self._descriptor: int = self._port.fileno()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def write(self, octets: bytes) -> None:
        """Send octets. Octets that the system does not take at once are sent as soon as it takes them."""
        self._unsent += octets
        if not self._writing:
            self._write()

    def close(self) -> None:
        """Close the port. Idempotent."""
        if self._port.is_open:
            self._loop.remove_reader(self._descriptor)
            if self._writing:
                self._loop.remove_writer(self._descriptor)
                self._writing = False
            with contextlib.suppress(OSError, serial.SerialException):
                self._port.close()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._descriptor, self._unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._gone(error)
            return
        waits = bool(self._unsent)
        if waits and not self._writing:
            self._loop.add_writer(self._descriptor, self._write)
        elif not waits and self._writing:
            self._loop.remove_writer(self._descriptor)
        self._writing = waits

    def _read(self) -> None:
        try:
            octets = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._gone(error)
            return
        if octets:
            self._received(octets)
        else:
            self._gone(None)

    def _gone(self, error: OSError | None) -> None:
        self.close()
        why = f" ({error.strerror})" if error else ""
        self._lost(f"{self.name} has gone away{why}: was the board unplugged?")


def _open(name: str, baud: int) -> serial.Serial:
    try:
        port = serial.Serial(name, baud, timeout=0, exclusive=True)
    except serial.SerialException as error:
        match error.errno:
            case errno.ENOENT | errno.ENODEV | errno.ENXIO:
                raise DeviceError(f"there is no serial port {name}") from None
            case errno.EACCES | errno.EPERM:
                raise DeviceError(
                    f"no permission for {name}: its group must have you as a member (often dialout)"
                ) from None
            case errno.EBUSY | errno.EAGAIN:
                raise DeviceError(f"{name} is in use by another program") from None
        # The text of pyserial begins with the error number and repeats the port's name. Without errno, the port has
        # opened, and termios has refused its settings.
        number = error.__context__.args[0] if isinstance(error.__context__, termios.error) else error.errno
        why = os.strerror(number) if number else error
        raise DeviceError(f"{name} cannot be opened as a serial port: {why}") from None
    except (ValueError, OSError, OverflowError) as error:
        raise DeviceError(f"{name} cannot be set to {baud} baud: {error}") from None
    # By default, some USB adapters hold octets back for 16 ms to collect more. Not all ports support this setting.
    with contextlib.suppress(OSError, ValueError, AttributeError, NotImplementedError):
        port.set_low_latency_mode(True)
    port.reset_input_buffer()
    # With pyserial's setting, a read returns nothing both if the line has ended and if no octets have arrived.
    settings = termios.tcgetattr(port.fileno())
    settings[6][termios.VMIN] = 1
    termios.tcsetattr(port.fileno(), termios.TCSANOW, settings)
    return port
