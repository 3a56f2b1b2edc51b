// SPDX-License-Identifier: Apache-2.0
//
// RestTarget: what a path of the Open Inference Protocol over HTTP, of its extensions and of what
// stands beside it asks for. Hostile: whatever comes is something, if only kUnknown or kBadName.
// docs/serving.md has all paths.
#pragma once

#include <string>

namespace atollserve {

struct RestTarget {
  enum class Kind {
    kUnknown,
    kServer,
    kLive,
    kReady,
    kModel,
    kModelReady,
    kInfer,
    kConfig,
    kStatistics,
    kAllStatistics,
    kIndex,
    kLoad,
    kUnload,
    kMemoryStatus,
    kMemoryRegister,
    kMemoryUnregister,
    kCudaMemory,
    kCudaStatus,
    kCudaUnregister,
    kMetrics,
    kState,
    kPage,
    kBadName,
  };
  Kind kind = Kind::kUnknown;
  std::string model = {};
  std::string version = {};
  std::string region = {};

  // Whether it is asked for by POST; all else by GET and HEAD.
  bool posts() const;

  // `path` is as it came, not decoded. `model` and `version` are "" or can be a name and a version;
  // `region` may be any text.
  static RestTarget Of(const std::string& path);
};

}  // namespace atollserve
