// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/status.h"

namespace atollrt {

const char* StageName(Stage stage) {
  switch (stage) {
    case Stage::kCapture:
      return "capture";
    case Stage::kDecode:
      return "decode";
    case Stage::kQueue:
      return "queue";
    case Stage::kResize:
      return "resize";
    case Stage::kInfer:
      return "infer";
    case Stage::kLinkOut:
      return "link_out";
    case Stage::kCompute:
      return "compute";
    case Stage::kLinkIn:
      return "link_in";
    case Stage::kPost:
      return "post";
    case Stage::kDraw:
      return "draw";
    case Stage::kEncode:
      return "encode";
    case Stage::kTotal:
      return "total";
  }
  return "?";
}

}  // namespace atollrt
