# SPDX-License-Identifier: Apache-2.0
"""The names of the original's module in C++."""
