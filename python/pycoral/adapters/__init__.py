# SPDX-License-Identifier: Apache-2.0
"""From pictures to input tensors, from output tensors to classes, boxes and maps."""
