// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/trace.h"

namespace atollrt {

const char* TraceUnitName(TraceUnit unit) {
  switch (unit) {
    case TraceUnit::kLinkOut:
      return "link out";
    case TraceUnit::kInfeed:
      return "infeed";
    case TraceUnit::kDma:
      return "DMA";
    case TraceUnit::kArray:
      return "array";
    case TraceUnit::kVector:
      return "vector";
    case TraceUnit::kOutfeed:
      return "outfeed";
    case TraceUnit::kLinkIn:
      return "link in";
    case TraceUnit::kSequencer:
      return "sequencer";
  }
  return "unknown";
}

}  // namespace atollrt
