// SPDX-License-Identifier: Apache-2.0
//
// The options of one custom operator: stored bytes -> OpOptions. Part of the loader.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// Fills in node->options from node->custom_options if node->custom_name is one that Atoll has;
// others keep none. kCorruptModel for bytes that are damaged, options that an operator cannot do
// without and numbers out of range.
Status ReadCustomOptions(Node* node);

}  // namespace atollrt
