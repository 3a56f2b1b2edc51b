// SPDX-License-Identifier: Apache-2.0
//
// The picture library: from a picture file to pixels of the wanted size, and back to an annotated
// file. It knows nothing of cameras and models.
//
//   image.h         pictures: decode JPEG, PNG, BMP, PPM; encode JPEG, class maps
//   planar_image.h  the same in planes of brightness and colour, as cameras have them
//   resize.h        bilinear resizing of pixels
//   input_scaler.h  from planes to a model's input in one pass
//   overlay.h       text, labels, lines and boxes
#pragma once

#include "atoll/picture/image.h"
#include "atoll/picture/input_scaler.h"
#include "atoll/picture/overlay.h"
#include "atoll/picture/planar_image.h"
#include "atoll/picture/resize.h"
