# SPDX-License-Identifier: Apache-2.0
"""New classes from the mean of their embeddings."""
