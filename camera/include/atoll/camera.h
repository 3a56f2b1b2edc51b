// SPDX-License-Identifier: Apache-2.0
//
// The camera library: models that look at every frame of a camera, on top of the picture and the
// vision library.
//
//   frame_source.h  cameras, and files and streams that stand in for one
//   frame_model.h   a model as a pipeline uses it
//   pipeline.h      capture, decode, infer, draw, encode: several models on every frame
//   status.h        what a pipeline tells about itself
#pragma once

#include "atoll/camera/frame_model.h"
#include "atoll/camera/frame_source.h"
#include "atoll/camera/pipeline.h"
#include "atoll/camera/status.h"
