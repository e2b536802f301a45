"""DDP and RDMAP (RFC 5041, RFC 5040) in the device: placement, STags, RDMA Reads answered without a host."""
