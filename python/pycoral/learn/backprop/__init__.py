# SPDX-License-Identifier: Apache-2.0
"""A last layer, trained by gradient descent."""
