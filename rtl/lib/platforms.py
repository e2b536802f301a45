"""What a design is elaborated for."""

__all__ = ["is_board"]


def is_board(platform) -> bool:
    """Whether a design is elaborated for a board, whose platform has pins and clocks, and not for a simulation."""
    return hasattr(platform, "add_clock_constraint")
