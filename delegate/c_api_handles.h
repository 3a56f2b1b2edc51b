// SPDX-License-Identifier: Apache-2.0
//
// The handles behind AtollDelegate and AtollExecutables, for the files of the C interface. Not
// installed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/status.h"
#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/c_api.h"

struct AtollExecutables {
  std::vector<atollrt::DescribedExecutable> list;
};

namespace atollrt {

struct DeviceDelegateHandle final : AtollDelegate {
  std::string name;
  std::string description;
  DeviceInfo info;                            // zeros of the CPU
  DeviceDelegate* device_delegate = nullptr;  // `delegate`, as what it is; nullptr: the CPU
};

// A pointer that a caller must give.
struct Argument {
  template <typename T>
  Argument(const char* its_name, T* value) : name(its_name), is_given(value != nullptr) {}
  const char* name;
  bool is_given;
};
// AtollLastError says which one is NULL.
inline bool AllGiven(std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments) {
    if (argument.is_given) continue;
    NullArgument(argument.name);
    return false;
  }
  return true;
}

// kInvalidArgument for NULL and for the CPU, which `what` cannot be asked of.
Result<const DeviceDelegateHandle*> FindDevice(const AtollDelegate* delegate, const char* what);

// What to open; NULL: the defaults. Errors as AtollDelegateCreate.
Result<OpenOptions> OpenOptionsOf(const AtollDelegateOptions* given);

// "this computer's CPU, avx2 kernels"
Result<std::string> DescribeCpu();

// The one at `index`, or the sentence that there is none; NULL has none.
inline Result<const DescribedExecutable*> FindExecutable(const AtollExecutables* executables,
                                                         int32_t index) {
  if (executables == nullptr) return InvalidArgument("argument 'executables' is NULL");
  if (index < 0 || static_cast<size_t>(index) >= executables->list.size()) {
    return InvalidArgument("executable %d of %zu", index, executables->list.size());
  }
  return &executables->list[index];
}

}  // namespace atollrt
