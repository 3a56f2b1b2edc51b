# SPDX-License-Identifier: Apache-2.0
"""Atoll in the place of LiteRT's package of this name (docs/python.md)."""
# The version whose interface this is; programs compare it.
__version__ = "1.0.1"
__git_version__ = "atoll"
