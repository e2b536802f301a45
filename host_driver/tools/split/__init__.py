"""What is worth doing where: the work of MPA placed on the host or on the device, stage by stage."""
