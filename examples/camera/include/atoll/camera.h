// SPDX-License-Identifier: Apache-2.0
//
// The camera library: frames at a camera's pace, on top of the picture library. It knows nothing
// of models; inference is a callback.
//
//   frame_source.h  cameras, and files that stand in for one
//   pipeline.h      capture, decode, resize, infer, draw at a camera's pace
#pragma once

#include "atoll/camera/frame_model.h"
#include "atoll/camera/frame_source.h"
#include "atoll/camera/pipeline.h"
#include "atoll/camera/status.h"
