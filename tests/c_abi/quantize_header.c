/* SPDX-License-Identifier: Apache-2.0
 *
 * The header needs nothing before it. */
#include "atoll/quantize.h"

/* C forbids an empty translation unit. */
AtollQuantizeOptions atoll_c_headers_quantize = ATOLL_QUANTIZE_OPTIONS_INIT;
