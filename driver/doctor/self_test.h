// SPDX-License-Identifier: Apache-2.0
//
// A self-test with known answers: one small executable or more for each instruction of the ISA
// (self_test.txt). Inputs and parameters come from a seed; of the outputs the hash is known, as the
// cycle-by-cycle emulation computed it, which shares no arithmetic with anything else (docs/isa.md
// §5).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/device/device.h"
#include "driver/isa/executable.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

struct SelfTestCase {
  std::shared_ptr<const Executable> executable;  // called "CONV_2D uint8, double" and the like
  std::vector<uint8_t> input;                    // of its one input
  uint64_t output_hash = 0;                      // of its one output, HashOf
};

std::vector<SelfTestCase> SelfTestCases();

// FNV-1a, 64 bits.
uint64_t HashOf(std::span<const uint8_t> bytes);

// The output's hash on that device, or the error of Device::Wait. The executable is unloaded again.
Result<uint64_t> RunSelfTestCase(const SelfTestCase& test, Device* device);

struct SelfTestResult {
  std::string device;  // "emu, avx2 kernels"
  std::string name;    // of the case
  Status status;       // kInternal if the answer is wrong, or what the device said
  double seconds = 0;
};

// All cases on `device`, called `name`, one after the other; that it is lost ends it. Takes about
// 0.1 s with the emulator.
std::vector<SelfTestResult> SelfTestDevice(Device* device, const std::string& name);

// All that computes for a device string (driver/device_name.h): the kernels of the CPU; for all but
// "cpu" the emulator with the kernels of each level that the CPU has; and the device itself, of
// which a Coral is opened only. Errors of OpenDevice.
Result<std::vector<SelfTestResult>> SelfTest(const std::string& device,
                                             const std::shared_ptr<UsbBus>& usb,
                                             const std::shared_ptr<PcieBus>& pcie = {});

}  // namespace atollrt
