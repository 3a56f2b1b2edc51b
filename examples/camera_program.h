// SPDX-License-Identifier: Apache-2.0
//
// What the programs with a camera have in common: models ready for frames, an orderly end and the
// account of all frames.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/atoll.hpp"
#include "atoll/camera.h"
#include "atoll/vision.h"

// Prints the message on stderr; gives the exit code, 1.
int Fail(const std::string& message);

// A number of frames, of an argument. Ends the program, with a sentence, if it is none.
uint64_t FramesOf(const char* argument);

// A model that looks at frames, with all that it needs.
struct CameraModel {
  atollpp::Interpreter interpreter;
  std::unique_ptr<atollrt::FrameModel> model;  // goes before the interpreter
};

// `task` is what the model is for, kNone: whatever it is. `labels` is a file with the name of one
// class per line, or "-" for none. The device of `delegate` may run other models, too. Errors begin
// with the model's path.
atollrt::Result<CameraModel> OpenCameraModel(
    const std::string& path, atollrt::Task task, const std::string& labels,
    const atollpp::Delegate& delegate,
    AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT);

// Opens a source of frames (atoll/camera/frame_source.h says which there are), which ends when
// StopRequested.
atollrt::Result<std::unique_ptr<atollrt::FrameSource>> OpenCamera(const std::string& spec);

// True after Ctrl-C or SIGTERM; for FrameSourceOptions::stop and PipelineOptions::stop.
const std::atomic<bool>& StopRequested();

// Where a detection is in the frame as it was captured (the decoded picture may be smaller).
atollrt::Rect PlaceInFrame(const atollrt::ProcessedFrame& processed,
                           const atollrt::ModelResult& result, const atollrt::Detection& detection);

// Runs `models` on the frames of `source`, the newest of a camera and all of a file, as `options`
// say otherwise, and prints the account of them. Gives the program's exit code.
int RunCamera(atollrt::FrameSource* source, std::vector<atollrt::PipelineModel> models,
              atollrt::PipelineOptions options);
