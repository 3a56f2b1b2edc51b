/* SPDX-License-Identifier: Apache-2.0
 *
 * The header needs nothing before it. */
#include "atoll/runtime.h"

/* C forbids an empty translation unit. */
AtollInterpreterOptions atoll_c_headers_runtime = ATOLL_INTERPRETER_OPTIONS_INIT;
