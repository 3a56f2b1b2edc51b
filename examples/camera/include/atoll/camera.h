// SPDX-License-Identifier: Apache-2.0
//
// The camera library: everything between a camera or a picture file and the input of a model, and
// back to an annotated picture. It knows nothing of models; inference is a callback.
//
//   image.h         pictures: decode JPEG, PNG, BMP, PPM; encode JPEG
//   resize.h        bilinear resizing to a model's input
//   overlay.h       labels and boxes
//   frame_source.h  cameras, and files that stand in for one
//   pipeline.h      capture, decode, resize, infer, draw at a camera's pace
#pragma once

#include "atoll/camera/frame_source.h"
#include "atoll/camera/image.h"
#include "atoll/camera/overlay.h"
#include "atoll/camera/pipeline.h"
#include "atoll/camera/resize.h"
