"""The Gaussian activations that the GEMM level of `prepack verify` multiplies with, made without prepack."""

import numpy

ROWS = 64


def seed_of(name):
    """FNV-1a."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return number


def words(seed, count):
    """SplitMix64."""
    with numpy.errstate(over="ignore"):
        numbers = numpy.uint64(seed % 2**64) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(
            0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> numpy.uint64(31))


def gaussian(k):
    """[ROWS, k] in f32: each number the sum of twelve of 16 bits, four of each of three words."""
    numbers = words(seed_of("activations") + k, 3 * ROWS * k).view("<u2").reshape(ROWS, k, 12)
    sums = numbers.astype(numpy.int64).sum(axis=2)
    return ((sums - 6 * 0xFFFF) / 65536).astype(numpy.float32)


def decibel(truth, found):
    """Signal to noise."""
    noise = ((truth - found) ** 2).sum()
    return float("inf") if noise == 0 else 10 * numpy.log10((truth**2).sum() / noise)
