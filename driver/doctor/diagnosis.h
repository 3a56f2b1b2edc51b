// SPDX-License-Identifier: Apache-2.0
//
// Why a device cannot be used, or is slower than it could be, from what the kernel shows of it: no
// device is opened and no library needed. docs/doctor.md lists the findings.
#pragma once

#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

enum class FindingLevel {
  kFine,     // a device that can be used
  kNote,     // nothing is wrong
  kWarning,  // it works, but not as well as it could
  kError,    // a device that is there cannot be used
};
const char* FindingLevelName(FindingLevel level);  // "fine", "note", "warning", "error"

struct Finding {
  FindingLevel level = FindingLevel::kNote;
  const char* code = "";  // "no_permission": for programs
  std::string device;     // "usb:2-3.1" or "pci:0000:01:00.0"; "" if it is about none
  std::string message;    // what is the case
  std::string fix;        // what to do; "" for nothing
};

struct DiagnosisOptions {
  // A folder that stands for /; "" is this computer. Then processes and permissions are those of
  // the files in it.
  std::string root = {};
  // Whether there is firmware for a Coral that has none, or why not and what to do.
  Status coral_firmware = {};
};

// By device, in the order of their ports; those about the whole computer come first.
std::vector<Finding> Diagnose(const DiagnosisOptions& options);

}  // namespace atollrt
