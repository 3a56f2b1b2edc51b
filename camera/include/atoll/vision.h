// SPDX-License-Identifier: Apache-2.0
//
// The vision library: what goes into a model that looks at pictures, and what it says about them as
// typed results. Everything concerns one interpreter of atoll/runtime.h and one picture at a time;
// a program with several models has one set of these objects for each.
//
//   picture_input.h   pixels -> the input tensor
//   readers.h         output tensors -> class scores, boxes, keypoints, a class per pixel
//   draw.h            results -> the picture
//
// Places are fractions of the model's input, 0 to 1 from its top left corner, so they hold for the
// part of a picture that became the input, whatever its size.
#pragma once

#include "atoll/vision/draw.h"
#include "atoll/vision/picture_input.h"
#include "atoll/vision/readers.h"
