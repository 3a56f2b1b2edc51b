# SPDX-License-Identifier: Apache-2.0
"""Atoll in the place of TensorFlow Lite's package of this name (docs/python.md)."""
# The version whose interface this is; programs compare it.
__version__ = "2.5.0.post1"
__git_version__ = "atoll"
