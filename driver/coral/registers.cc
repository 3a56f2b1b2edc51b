// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/registers.h"

#include <iterator>

namespace atollrt::coral {
namespace {

constexpr const char* kErrorNames[] = {
    "page fault",
    "page fault in the extended table",
    "parity error in a register",
    "error answer to a write on the bus",
    "error answer to a read on the bus",
    "bad configuration of the instruction queue",
    "bad configuration of the input queue",
    "bad configuration of the parameter queue",
    "bad configuration of the output queue",
    "invalid descriptor in the instruction queue",
    "invalid descriptor in the input queue",
    "invalid descriptor in the parameter queue",
    "invalid descriptor in the output queue",
    "transfer of no bytes",
    "uncorrectable error in the page table",
};

}  // namespace

std::string DescribeHibError(uint64_t bits) {
  std::string text;
  for (size_t i = 0; i < std::size(kErrorNames); ++i) {
    if (bits >> i & 1) text += (text.empty() ? "" : ", ") + std::string(kErrorNames[i]);
  }
  return text.empty() ? "unknown error" : text;
}

const char* TopLevelMeaning(uint32_t number) {
  constexpr const char* kMeanings[] = {"is too hot and shuts down", "reports an error on its bus",
                                       "reports a failed test of its memory or clocks", "is hot"};
  return kMeanings[number];
}

}  // namespace atollrt::coral
