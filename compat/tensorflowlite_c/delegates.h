// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TENSORFLOWLITE_C_DELEGATES_H_
#define ATOLL_COMPAT_TENSORFLOWLITE_C_DELEGATES_H_

#include <memory>
#include <vector>

#include "atoll/delegate.h"
#include "compat/tensorflowlite_c/reporter.h"

namespace atollcompat {

// What an interpreter shall run on, besides the CPU.
struct Device {
  bool ok = false;                            // false: the reason was reported
  AtollDelegate* delegate = nullptr;          // null: nothing
  std::shared_ptr<AtollDelegate> of_process;  // keeps it, if it is not the program's own
};

// The first of Atoll's own among a program's delegates (others are left out with a warning; that it
// could not open its device is an error), else the device that ATOLL_DEVICE names, which
// interpreters of a process share.
Device ChooseDevice(const std::vector<TfLiteDelegate*>& delegates, const Reporter& reporter);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TENSORFLOWLITE_C_DELEGATES_H_
