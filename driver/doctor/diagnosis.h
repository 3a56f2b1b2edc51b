// SPDX-License-Identifier: Apache-2.0
//
// Why a device cannot be used, or is slower than it could be, from what the kernel shows of it: no
// device on USB is opened and no library needed. docs/doctor.md lists the findings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/pcie/pcie_bus.h"

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
  std::string device;     // "usb:2-3.1", "pci:0000:01:00.0", "/dev/apex_0"; "": about none
  std::string message;    // what is the case
  std::string fix;        // what to do; "" for nothing
};

struct DiagnosisOptions {
  // A folder that stands for /; "" is this computer. Then processes and permissions are those of
  // the files in it.
  std::string root = {};
  // Whether there is firmware for a Coral that has none, or why not and what to do.
  Status coral_firmware = {};
  // Where what looks usable on PCIe is opened and closed again, to see whether it answers, gets its
  // interrupts and keeps cool. nullptr: nothing is opened.
  std::shared_ptr<PcieBus> pcie = {};
  uint64_t page_bytes = 0;     // of the kernel; 0: not known
  uint64_t memlock_bytes = 0;  // that this user may pin; 0: not known, or no limit
};

// `options` with the pages and limits of this computer.
DiagnosisOptions OnThisComputer(DiagnosisOptions options);

// By device: those on USB in the order of their ports, those on PCIe in that of their addresses;
// those about the whole computer come first.
std::vector<Finding> Diagnose(const DiagnosisOptions& options);

}  // namespace atollrt
