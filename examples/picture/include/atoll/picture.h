// SPDX-License-Identifier: Apache-2.0
//
// The picture library: from a picture file to pixels of the wanted size, and back to an annotated
// file. It knows nothing of cameras and models.
//
//   image.h    pictures: decode JPEG, PNG, BMP, PPM; encode JPEG, class maps
//   resize.h   bilinear resizing to a model's input
//   overlay.h  text, labels, lines and boxes
#pragma once

#include "atoll/picture/image.h"
#include "atoll/picture/overlay.h"
#include "atoll/picture/resize.h"
