// SPDX-License-Identifier: Apache-2.0
//
// The vision library: what goes into a model that looks at pictures, and what it says about them as
// typed results. Everything concerns one interpreter of atoll/runtime.h and one picture at a time;
// a program with several models has one set of these objects for each.
//
//   picture_input.h   pixels -> the input tensor
//   task.h            which of the readers below a model is for
//   classification.h  output tensors -> scores of classes
//   detection.h       output tensors -> boxes with class and score
//   segmentation.h    output tensors -> a class per pixel
//   pose.h            output tensors -> people as keypoints
//   draw.h            results -> the picture
//
// Places are fractions of the model's input, 0 to 1 from its top left corner, so they hold for the
// part of a picture that became the input, whatever its size.
//
// A reader is made once for an interpreter, which must outlive it; that is where everything is
// checked. It reads what the latest Invoke left in the output tensors. Readers are small, copyable,
// and used from the thread that uses the interpreter.
#pragma once

#include "atoll/vision/classification.h"
#include "atoll/vision/detection.h"
#include "atoll/vision/draw.h"
#include "atoll/vision/picture_input.h"
#include "atoll/vision/pose.h"
#include "atoll/vision/segmentation.h"
#include "atoll/vision/task.h"
