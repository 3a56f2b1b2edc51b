/* SPDX-License-Identifier: Apache-2.0
 *
 * The header needs nothing before it. */
#include "atoll/delegate.h"

/* C forbids an empty translation unit. */
AtollDelegateOptions atoll_c_headers_delegate = ATOLL_DELEGATE_OPTIONS_INIT;
