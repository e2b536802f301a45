"""The way out: ULPDUs become FPDUs."""
