"""Registered memory."""

import array
import itertools

import pytest

from open_rnic.host_driver.rdma.memory import Access, ProtectionDomain, StagTable


@pytest.fixture
def domain():
    made = ProtectionDomain()
    yield made
    for region in made:
        region.deregister()
    assert len(made) == 0


def test_stags_have_32_bits_and_form_no_sequence(domain):
    """RFC 5040 §8.1.1 rule 8: difficult to predict, sparse over the full range."""
    stags = [domain.register(bytearray(1), Access.REMOTE_READ).stag for _ in range(500)]
    assert len(set(stags)) == 500
    assert 0 not in stags
    assert all(0 < stag < 2**32 for stag in stags)
    assert all(100 < sum(stag >> bit & 1 for stag in stags) < 400 for bit in range(32))
    steps = {after - before for before, after in itertools.pairwise(stags)}
    assert len(steps) > 490


def test_as_many_regions_as_a_device_has_rows_have_different_rows(domain):
    """They may be older than the connection to the device."""
    for rows in (16, 64, 1024):
        while len(domain) < rows:
            domain.register(bytearray(1), Access.REMOTE_READ)
        assert len({region.stag % rows for region in domain}) == rows


def test_regions_are_valid_until_they_are_deregistered(domain):
    buffer = bytearray(4)
    with domain.register(buffer, Access.REMOTE_READ) as region:
        assert region.valid
        assert domain.stags.find(region.stag) is region
        assert list(domain) == [region]
        with pytest.raises(BufferError):
            buffer.append(0)
    assert not region.valid
    assert domain.stags.find(region.stag) is None
    region.deregister()
    buffer.append(0)


def test_domains_know_each_others_stags_only_if_they_share_a_table(domain):
    stags = StagTable()
    with (
        ProtectionDomain(stags).register(bytearray(4), Access.REMOTE_READ) as shared,
        domain.register(bytearray(4), Access.REMOTE_READ) as own,
    ):
        assert ProtectionDomain(stags).stags.find(shared.stag) is shared
        assert ProtectionDomain().stags.find(own.stag) is None
        assert (len(stags), len(domain.stags), len(ProtectionDomain().stags)) == (1, 1, 0)


def test_a_stream_s_regions_are_released_together(domain):
    stream, other = object(), object()
    mine = [domain.register(bytearray(1), Access.REMOTE_READ, stream=stream) for _ in range(3)]
    rest = [domain.register(bytearray(1), Access.REMOTE_READ, stream=each) for each in (other, None)]
    domain.release(stream)
    domain.release(stream)
    assert not any(region.valid for region in mine)
    assert set(domain) == set(rest)


def test_any_buffer_in_one_piece_is_used_in_place(domain):
    numbers = array.array("I", [1, 2, 3])
    region = domain.register(numbers, Access.REMOTE_WRITE)
    assert len(region) == 12
    region.view[:] = bytes(12)
    assert list(numbers) == [0, 0, 0]
    assert len(domain.register(b"", Access.REMOTE_READ | Access.REMOTE_WRITE)) == 0


@pytest.mark.parametrize(
    ("buffer", "to", "what"),
    [
        (b"abc", 0, "a read-only buffer cannot have a right to write"),
        (bytearray(3), -1, "a buffer of 3 octets from TO -0x1 on does not stay below TO 2"),
        (bytearray(3), 2**64 - 3, "a buffer of 3 octets from TO 0xfffffffffffffffd on does not stay below TO 2"),
        (memoryview(bytearray(8))[::2], 0, "a buffer must lie in one piece"),
    ],
)
def test_buffers_that_cannot_be_registered_are_refused(domain, buffer, to, what):
    with pytest.raises(ValueError, match=what):
        domain.register(buffer, Access.REMOTE_WRITE, to=to)


def test_rights_may_be_a_number(domain):
    assert domain.register(bytearray(5), 3).access == Access.LOCAL_WRITE | Access.REMOTE_WRITE
    for access, wrong in ((9, ValueError), (-1, ValueError), (3.0, TypeError), ("3", TypeError), (None, TypeError)):
        what = f"sum of LOCAL_WRITE 1, REMOTE_WRITE 2, REMOTE_READ 4, not {access!r}$"
        with pytest.raises(wrong, match=what):
            domain.register(bytearray(5), access)


def test_the_repr_shows_size_stag_to_and_rights(domain):
    region = domain.register(bytearray(5), Access.REMOTE_READ | Access.REMOTE_WRITE, to=16)
    assert repr(region) == f"<Region of 5 octets, STag {region.stag:#010x}, TO 0x10, REMOTE_WRITE|REMOTE_READ>"
