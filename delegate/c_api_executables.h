// SPDX-License-Identifier: Apache-2.0
//
// The handle behind AtollExecutables, for the files of the C interface that take one. Not
// installed.
#pragma once

#include <cstdint>
#include <vector>

#include "atoll/delegate.h"
#include "delegate/delegate.h"
#include "runtime/base/status.h"

struct AtollExecutables {
  std::vector<atollrt::DescribedExecutable> list;
};

namespace atollrt {

// The one at `index`, or the sentence that there is none; NULL has none.
Result<const DescribedExecutable*> FindExecutable(const AtollExecutables* executables,
                                                  int32_t index);

}  // namespace atollrt
