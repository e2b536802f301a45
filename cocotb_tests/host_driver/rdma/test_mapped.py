"""The memory in which a device finds the application's buffers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver.rdma.engine import SPACE, MappedMemory
from open_rnic.host_driver.rdma.memory import Growing, Scattered


def test_buffers_are_used_in_place():
    memory, buffer = MappedMemory(), bytearray(b"abcdef")
    address = memory.map(memoryview(buffer))
    memory.write(address + 1, b"XY")
    assert buffer == b"aXYdef"
    buffer[5:] = b"!"
    assert memory.read(address + 2, 4) == b"Yde!"


def test_pieces_and_buffers_of_unknown_length_are_buffers_like_any_other():
    memory, pieces, growing = MappedMemory(), [bytearray(3), bytearray(4)], Growing(1000)
    address = memory.map(Scattered([memoryview(each) for each in pieces]))
    memory.write(address + 1, b"12345")
    assert pieces == [b"\0" b"12", b"345\0"]
    assert memory.read(address, 7) == b"\0" b"12345\0"
    address = memory.map(growing)
    memory.write(address, b"first ")
    memory.write(address + 6, b"second")
    assert bytes(growing[:]) == b"first second"


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(-70, 70), st.integers(0, 700))
def test_octets_beside_buffers_are_zero_and_change_nothing(sizes, start, octets):
    memory, buffers = MappedMemory(), [bytearray(b"\x55" * size) for size in sizes]
    addresses = [memory.map(memoryview(each)) for each in buffers]
    model = bytearray(SPACE >> 16)
    for address, buffer in zip(addresses, buffers, strict=True):
        model[address : address + len(buffer)] = buffer
    at = max(addresses[len(sizes) // 2] + start, 0)
    assert memory.read(at, octets) == model[at : at + octets]
    memory.write(at, b"\xaa" * octets)
    for address, buffer in zip(addresses, buffers, strict=True):
        for n, octet in enumerate(buffer):
            assert octet == (0xAA if at <= address + n < at + octets else 0x55)


def test_a_retired_buffer_is_used_no_more_but_keeps_its_place_until_it_is_unmapped():
    memory, buffer = MappedMemory(4096), bytearray(b"\x55" * 2000)
    address = memory.map(memoryview(buffer))
    assert memory.retire(address)
    assert not memory.retire(address)
    memory.write(address + 7, b"late")
    assert memory.read(address, 2000) == bytes(2000)
    assert buffer == b"\x55" * 2000
    memory.map(memoryview(bytearray(1900)))
    with pytest.raises(ValueError, match="no 100 consecutive octets of memory left"):
        memory.map(memoryview(bytearray(100)))
    memory.unmap(address)
    memory.unmap(address)  # again
    assert not memory.retire(address)
    assert memory.map(memoryview(bytearray(100))) == address


class Long:
    """A buffer of any length without octets."""

    def __init__(self, octets):
        self.octets = octets

    def __len__(self):
        return self.octets


def test_addresses_begin_again_behind_the_last_one_and_leave_out_those_in_use():
    memory = MappedMemory()
    first = memory.map(Long(1 << 30))
    second = memory.map(Long(1 << 31))
    memory.unmap(first)
    third = memory.map(Long(1 << 29))  # behind the second
    assert third == second + (1 << 31)
    fourth = memory.map(Long(1 << 29))
    assert fourth == first
    with pytest.raises(ValueError, match="no 2147483648 consecutive octets of memory left"):
        memory.map(Long(1 << 31))
    memory.unmap(second)
    assert memory.map(Long(1 << 31)) < third


@pytest.mark.parametrize(("octets", "words"), [(1, 1), (16, 1), (17, 2), (982, 62), (2000, 64)])
def test_words_end_with_the_last_one_of_a_buffer(octets, words):
    memory, buffer = MappedMemory(), bytearray(b"\x55" * octets)
    address = memory.map(memoryview(buffer))
    behind = memory.map(memoryview(bytearray(b"\xaa" * 8)))
    found = memory.words(address, 1024, 16)
    assert found == bytes(buffer[:1024]).ljust(16 * words, b"\0")
    last = address + 16 * ((octets - 1) // 16)
    assert memory.words(last, 1024, 16) == bytes(buffer[last - address :]).ljust(16, b"\0")
    assert memory.words(behind + 64, 1024, 16) == bytes(16)
