# SPDX-License-Identifier: Apache-2.0
"""What tests over stand-ins for a Coral share."""


def splitmix64(seed, size):
    data = bytearray()
    mask = 2**64 - 1
    while len(data) < size:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        data += (z ^ z >> 31).to_bytes(8, "little")
    return bytes(data[:size])
