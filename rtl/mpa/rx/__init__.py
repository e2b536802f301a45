"""The way in: FPDUs become ULPDUs."""
