"""Linear algebra over GF(2), for the CRC in gateware.

A vector of up to 32 bits is an int. A matrix is the tuple of its columns, so that column ``i`` is the image
of bit ``i``.
"""

from functools import reduce
from operator import xor

__all__ = ["Matrix", "apply", "identity", "inverse", "multiply", "power", "rows"]

Matrix = tuple[int, ...]


def identity(size: int) -> Matrix:
    """The identity of ``size`` bits."""
    return tuple(1 << i for i in range(size))


def apply(matrix: Matrix, vector: int) -> int:
    """``matrix`` times ``vector``."""
    return reduce(xor, (column for i, column in enumerate(matrix) if vector >> i & 1), 0)


def multiply(left: Matrix, right: Matrix) -> Matrix:
    """``left`` times ``right``: applies ``right`` first, then ``left``."""
    return tuple(apply(left, column) for column in right)


def power(matrix: Matrix, exponent: int) -> Matrix:
    """``matrix`` to the power of ``exponent``; negative powers are those of its inverse."""
    if exponent < 0:
        return power(inverse(matrix), -exponent)
    result = identity(len(matrix))
    for _ in range(exponent):
        result = multiply(matrix, result)
    return result


def inverse(matrix: Matrix) -> Matrix:
    """The inverse of a square matrix, by Gauss-Jordan elimination; raises ValueError if there is none."""
    size = len(matrix)
    # Each entry pairs a column with the combination of columns that made it.
    work = [(column, 1 << i) for i, column in enumerate(matrix)]
    for bit in range(size):
        pivot = next((i for i in range(bit, size) if work[i][0] >> bit & 1), None)
        if pivot is None:
            raise ValueError("the matrix is singular")
        work[bit], work[pivot] = work[pivot], work[bit]
        for i in range(size):
            if i != bit and work[i][0] >> bit & 1:
                work[i] = (work[i][0] ^ work[bit][0], work[i][1] ^ work[bit][1])
    return tuple(combination for _, combination in work)


def rows(matrix: Matrix, size: int = 32) -> tuple[int, ...]:
    """For each output bit, a mask of the input bits that it sums."""
    return tuple(sum((column >> bit & 1) << i for i, column in enumerate(matrix)) for bit in range(size))
