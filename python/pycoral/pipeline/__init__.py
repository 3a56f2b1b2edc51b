# SPDX-License-Identifier: Apache-2.0
"""Models in segments, one behind the other."""
