// SPDX-License-Identifier: Apache-2.0
//
// What runs in place of a model that Google's compiler made for a Coral, where there is none: the
// model that it was made from, which runs on any device and on the CPU. The one place that decides
// it, for everything that makes interpreters. Thread-safe.
//
// Looked for, in this order:
//   1. `options->fallback`, which is taken or is an error;
//   2. by hash, for the public models of coral_pairs.inc: the file in ATOLL_MODEL_PATH (folders and
//      files with ':' between, folders without those in them) that the compiled file or, if only
//      that is known, its package was made from;
//   3. by name, beside the file of the model: without "_edgetpu", or cpu_model.tflite;
//   4. by name, beside a compiled file in ATOLL_MODEL_PATH that holds the same package.
// What is found by itself must have inputs and outputs of the same number, types, shapes and
// quantization, by their names if all are the same, else by position. Of a model in memory that is
// one operator for a Coral and nothing else, as delegates of other runtimes write it, they may also
// be tensors inside of the substitute, found by their names; only what lies between them runs then.
//
// In libatoll-core nothing runs in place of another model (no_substitute.cc).
#pragma once

#include <memory>

#include "atoll/status.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"

namespace atollrt {

// If `*model` has operators for a Coral and `options->delegate` is none, replaces it by the model
// that runs instead, with the names and numbers of its inputs and outputs in `*model`, takes
// `options->fallback` away, and sets `*path` to the file of the substitute, whose name is the new
// model's, "" if it came from memory; a note in the log says so, once for each pair. Otherwise
// `*path` is nullptr and nothing changes. kUnsupported if there is no substitute, with the ways to
// name one and why files that were looked at did not fit; kInvalidArgument if the fallback does not
// fit.
Status SubstituteForCoral(std::shared_ptr<const Model>* model, InterpreterOptions* options,
                          const char** path);

}  // namespace atollrt
