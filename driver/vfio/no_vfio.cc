// SPDX-License-Identifier: Apache-2.0
#include "driver/pcie/pcie_bus.h"

namespace atollrt {

std::shared_ptr<PcieBus> SystemPcieBus() { return nullptr; }

}  // namespace atollrt
