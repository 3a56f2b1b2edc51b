// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/rest_target.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "serve/http/http_message.h"
#include "serve/inference/model_files.h"
#include "serve/oip/page.h"

namespace atollserve {

bool RestTarget::posts() const {
  return kind == Kind::kInfer || kind == Kind::kIndex || kind == Kind::kLoad ||
         kind == Kind::kUnload || kind == Kind::kMemoryRegister ||
         kind == Kind::kMemoryUnregister || kind == Kind::kCudaUnregister;
}

// Split first, then decoded, so that no name has further parts.
RestTarget RestTarget::Of(const std::string& path) {
  if (path == "/metrics") return {.kind = Kind::kMetrics};
  if (path == "/state") return {.kind = Kind::kState};
  if (FindPage(path) != nullptr) return {.kind = Kind::kPage};
  std::vector<std::string> parts;
  for (size_t from = 1; from <= path.size();) {
    const size_t end = std::min(path.find('/', from), path.size());
    const auto part = DecodePercent(std::string_view(path).substr(from, end - from));
    if (!part) return {.kind = Kind::kBadName};
    parts.push_back(*part);
    if (parts.size() > 8) return {};
    from = end + 1;
  }
  if (parts.size() > 1 && parts.back().empty()) parts.pop_back();  // "/v2/"
  if (parts.empty() || parts[0] != "v2") return {};
  const size_t count = parts.size();
  const auto is = [&](size_t index, const char* text) {
    return index < count && parts[index] == text;
  };
  if (count == 1) return {.kind = Kind::kServer};
  if (is(1, "health") && count == 3) {
    if (is(2, "live")) return {.kind = Kind::kLive};
    if (is(2, "ready")) return {.kind = Kind::kReady};
  }
  if (is(1, "models") && is(2, "stats") && count == 3) return {.kind = Kind::kAllStatistics};
  if (is(1, "models") && count >= 3) {
    RestTarget target = {.model = parts[2]};
    if (!IsModelName(target.model)) return {.kind = Kind::kBadName};
    size_t next = 3;
    if (is(3, "versions") && count >= 5) {
      target.version = parts[4];
      if (!ParseVersion(target.version)) return {.kind = Kind::kBadName};
      next = 5;
    }
    if (next == count) {
      target.kind = Kind::kModel;
    } else if (next + 1 == count) {
      target.kind = is(next, "infer")    ? Kind::kInfer
                    : is(next, "ready")  ? Kind::kModelReady
                    : is(next, "config") ? Kind::kConfig
                    : is(next, "stats")  ? Kind::kStatistics
                                         : Kind::kUnknown;
    }
    return target;
  }
  if (is(1, "repository")) {
    if (is(2, "index") && count == 3) return {.kind = Kind::kIndex};
    if (is(2, "models") && count == 5) {
      if (!IsModelName(parts[3])) return {.kind = Kind::kBadName};
      if (is(4, "load")) return {.kind = Kind::kLoad, .model = parts[3]};
      if (is(4, "unload")) return {.kind = Kind::kUnload, .model = parts[3]};
    }
  }
  if (is(1, "systemsharedmemory")) {
    RestTarget target;
    size_t next = 2;
    if (is(2, "region") && count >= 4) {
      target.region = parts[3];
      next = 4;
    }
    if (next + 1 == count) {
      const bool named = !target.region.empty();
      target.kind = is(next, "status")              ? Kind::kMemoryStatus
                    : is(next, "register") && named ? Kind::kMemoryRegister
                    : is(next, "unregister")        ? Kind::kMemoryUnregister
                                                    : Kind::kUnknown;
    }
    return target;
  }
  if (is(1, "cudasharedmemory") && count > 2) {
    return {.kind = parts.back() == "status"       ? Kind::kCudaStatus
                    : parts.back() == "unregister" ? Kind::kCudaUnregister
                                                   : Kind::kCudaMemory};
  }
  return {};
}

}  // namespace atollserve
