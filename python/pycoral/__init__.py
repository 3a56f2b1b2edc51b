# SPDX-License-Identifier: Apache-2.0
"""Atoll in the place of Coral's package of this name (docs/python.md)."""
# The version whose interface this is; programs compare it.
__version__ = "2.0.0"
