"""Streams, queues, CRC-32C, GF(2) and rotation: blocks that do not depend on MPA."""
