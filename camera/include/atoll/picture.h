// SPDX-License-Identifier: Apache-2.0
//
// The picture library: from a picture file to pixels of the wanted size, and back to an annotated
// file. It knows nothing of cameras and models.
//
//   image.h         pixels and planes: decode JPEG, PNG, BMP, PPM; resize; encode JPEG, class maps
//   input_scaler.h  from planes to a model's input in one pass
//   overlay.h       text, labels, lines and boxes
#pragma once

#include "atoll/picture/image.h"
#include "atoll/picture/input_scaler.h"
#include "atoll/picture/overlay.h"
