# SPDX-License-Identifier: Apache-2.0
"""Edge TPUs, and files with labels."""
