"""Ethernet, ARP, IPv4, ICMP echo and UDP: what lies between the Ethernet MAC and TCP."""
