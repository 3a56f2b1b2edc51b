// SPDX-License-Identifier: Apache-2.0
//
// What users commonly get wrong between a model, its label file and a subcommand, found before
// anything runs. A finding is a warning: the model works, but perhaps not as its user expects. What
// cannot work at all is an error; the sentences here then say what to do instead.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "atoll/vision/readers.h"

namespace atollcmd {

struct Finding {
  const char* code;     // for programs, for example "label_count"; part of the JSON interface
  std::string message;  // what is wrong, with the numbers, and the fix; without a full stop
};

// How a subcommand is about to use a model.
struct ModelUse {
  // Whose reader reads the outputs; kNone: they leave as bytes.
  atollrt::Task task = atollrt::Task::kNone;
  bool takes_picture = false;  // pixels become the input
  bool scaling_given = false;  // by --mean or --std
  bool lists_reasons = false;  // why each operator is on the CPU is said anyhow
};

// Codes: float_model, nothing_on_device, always; input_channels, input_batch, input_scale,
// input_normalization for pictures; raw_detector without a task; output_scores, output_is_picture
// by task.
std::vector<Finding> LintModel(AtollInterpreter* interpreter, const ModelUse& use);

// How many classes a model has, as far as it says.
struct ClassCount {
  int least = 0;
  int most = 0;
};

// Code label_count: the file has more or fewer names than the model has classes. `offset` of the
// names do not count (or are missing, where it is negative).
std::optional<Finding> LintLabels(const std::string& path, const std::vector<std::string>& names,
                                  int offset, const ClassCount& classes);

// What to do with a model whose outputs the reader of `wanted` does not accept: the subcommand that
// does, or how to convert the model.
std::string AdviseTask(AtollInterpreter* interpreter, atollrt::Task wanted);

// Whether a model of which nothing is known looks as if it took pictures: one input with sides of
// at least 16 in the second and third dimension, or of a picture with its channels first.
bool SeemsToTakePictures(AtollInterpreter* interpreter);

// What to do with a model whose input takes no picture.
std::string AdviseInput(AtollInterpreter* interpreter);

}  // namespace atollcmd
