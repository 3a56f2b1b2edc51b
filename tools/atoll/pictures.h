// SPDX-License-Identifier: Apache-2.0
//
// How models and pictures come together.
#pragma once

#include <utility>

#include "atoll/vision.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/lint.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {

// Adds --mean and --std to a subcommand.
void AddPixelScalingOptions(Command* command, atollrt::PixelScaling* scaling);

// The input that takes the pictures. Throws CommandError, with what to do instead, if there is
// none.
atollrt::PictureInput OpenPictureInput(const Session& session,
                                       const atollrt::PixelScaling& scaling);

// A reader of the outputs, for example OpenReader<atollrt::PoseReader>(session, Task::kPose).
// Throws CommandError, with the subcommand to use instead, if the model is of another kind.
template <typename Reader>
Reader OpenReader(const Session& session, atollrt::Task task) {
  atollrt::Result<Reader> reader = Reader::Create(session.interpreter());
  if (!reader.ok()) {
    throw CommandError(ExitCode::kBadModel,
                       reader.status().message() + "; " + AdviseTask(session.interpreter(), task));
  }
  return *std::move(reader);
}

// What the label file of a model for `task` has to fit; `most` is 0 if there are no classes.
LabelRule LabelRuleOf(const Session& session, atollrt::Task task);

}  // namespace atollcmd
