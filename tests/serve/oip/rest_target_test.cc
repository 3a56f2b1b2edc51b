// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/rest_target.h"

#include <gtest/gtest.h>

#include <string>

namespace atollserve {
namespace {

using Kind = RestTarget::Kind;

TEST(RestTarget, KnowsEachPath) {
  const struct {
    const char* path;
    Kind kind;
    bool posts;
  } paths[] = {
      {"/", Kind::kPage, false},
      {"/page.js", Kind::kPage, false},
      {"/metrics", Kind::kMetrics, false},
      {"/state", Kind::kState, false},
      {"/v2", Kind::kServer, false},
      {"/v2/", Kind::kServer, false},
      {"/v2/health/live", Kind::kLive, false},
      {"/v2/health/ready", Kind::kReady, false},
      {"/v2/models/stats", Kind::kAllStatistics, false},
      {"/v2/models/m", Kind::kModel, false},
      {"/v2/models/m/ready", Kind::kModelReady, false},
      {"/v2/models/m/config", Kind::kConfig, false},
      {"/v2/models/m/stats", Kind::kStatistics, false},
      {"/v2/models/m/infer", Kind::kInfer, true},
      {"/v2/repository/index", Kind::kIndex, true},
      {"/v2/repository/models/m/load", Kind::kLoad, true},
      {"/v2/repository/models/m/unload", Kind::kUnload, true},
      {"/v2/systemsharedmemory/status", Kind::kMemoryStatus, false},
      {"/v2/systemsharedmemory/region/r/register", Kind::kMemoryRegister, true},
      {"/v2/systemsharedmemory/unregister", Kind::kMemoryUnregister, true},
      {"/v2/cudasharedmemory/status", Kind::kCudaStatus, false},
      {"/v2/cudasharedmemory/unregister", Kind::kCudaUnregister, true},
  };
  for (const auto& [path, kind, posts] : paths) {
    const RestTarget target = RestTarget::Of(path);
    EXPECT_EQ(target.kind, kind) << path;
    EXPECT_EQ(target.posts(), posts) << path;
  }
}

TEST(RestTarget, FindsNamesWhateverTheyAreWrittenAs) {
  const RestTarget model = RestTarget::Of("/v2/models/%6Dine/versions/12/infer");
  EXPECT_EQ(model.kind, Kind::kInfer);
  EXPECT_EQ(model.model, "mine");
  EXPECT_EQ(model.version, "12");
  // A slash that is decoded begins no further part.
  const RestTarget region = RestTarget::Of("/v2/systemsharedmemory/region/a%2Fstatus/register");
  EXPECT_EQ(region.kind, Kind::kMemoryRegister);
  EXPECT_EQ(region.region, "a/status");
}

TEST(RestTarget, HasNothingAtOtherPaths) {
  for (const char* path : {"/v1", "/v2/other", "/v2/models", "/v2/models/m/other", "/v2/health",
                           "/v2/models/m/infer/more", "/v2/systemsharedmemory/register",
                           "/v2/repository/models/m", "//v2", "/v2/1/2/3/4/5/6/7/8"}) {
    EXPECT_EQ(RestTarget::Of(path).kind, Kind::kUnknown) << path;
  }
  for (const char* path : {"/v2/models/%zz", "/v2/models/..", "/v2/models/a%2Fb/infer",
                           "/v2/models/m/versions/x", "/v2/repository/models/..%2F/load"}) {
    EXPECT_EQ(RestTarget::Of(path).kind, Kind::kBadName) << path;
  }
}

}  // namespace
}  // namespace atollserve
