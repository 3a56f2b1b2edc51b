# SPDX-License-Identifier: Apache-2.0
"""New classes for models, learned on this computer."""
