// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/page_table.h"

#include <algorithm>
#include <cstddef>

#include "atoll/check.h"

namespace atollrt {

Result<uint64_t> CoralAddressSpace::Take(uint64_t pages) {
  ATOLL_CHECK(pages > 0);
  uint64_t gap = 0;
  for (const auto& [first, count] : taken_) {
    if (first - gap >= pages) break;
    gap = first + count;
  }
  if (pages > kCoralExtendedPages - gap) {
    return ResourceExhausted(
        "no %llu pages in a row are left of the %llu that the chip has addresses for",
        static_cast<unsigned long long>(pages),
        static_cast<unsigned long long>(kCoralExtendedPages));
  }
  taken_[gap] = pages;
  return kCoralExtended + gap * kCoralPageBytes;
}

void CoralAddressSpace::Give(uint64_t address, uint64_t pages) {
  const auto found = taken_.find((address - kCoralExtended) / kCoralPageBytes);
  ATOLL_CHECK(found != taken_.end() && found->second == pages);
  taken_.erase(found);
}

}  // namespace atollrt
