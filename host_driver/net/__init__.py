"""Ethernet, ARP, IPv4, ICMP and UDP in software, without I/O: the lower half of a TCP/IP stack."""
