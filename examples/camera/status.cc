// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/status.h"

#include <array>

namespace atollrt {

const char* StageName(Stage stage) {
  static constexpr std::array<const char*, kStageCount> kNames = {
      "capture", "decode", "resize", "queue", "link_out", "compute",
      "link_in", "host",   "post",   "draw",  "encode",   "total"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace atollrt
