// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of coral_substitute.cc.
#include "runtime/substitute.h"

namespace atollrt {

Status SubstituteForCoral(std::shared_ptr<const Model>*, InterpreterOptions*, const char**) {
  return {};
}

}  // namespace atollrt
