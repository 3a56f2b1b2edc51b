// SPDX-License-Identifier: Apache-2.0
//
// The handles behind AtollDelegate and AtollExecutables, for the files of the C interface. Not
// installed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/status.h"
#include "delegate/delegate.h"
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

// kInvalidArgument for NULL and for the CPU, which `what` cannot be asked of.
Result<const DeviceDelegateHandle*> FindDevice(const AtollDelegate* delegate, const char* what);

// "this computer's CPU, avx2 kernels"
Result<std::string> DescribeCpu();

// The one at `index`, or the sentence that there is none; NULL has none.
Result<const DescribedExecutable*> FindExecutable(const AtollExecutables* executables,
                                                  int32_t index);

}  // namespace atollrt
