// SPDX-License-Identifier: Apache-2.0
//
// The camera library: everything between a camera or a picture file and the input of a model, and
// back to an annotated picture. It knows nothing of models; inference is a callback.
#pragma once

#include "atoll/camera/image.h"
#include "atoll/camera/resize.h"
