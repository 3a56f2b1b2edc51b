// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a request to the camera's server, arriving in two parts as a connection gives them:
// what is decided after the first part is not decided otherwise after the second.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "atoll/check.h"
#include "camera/web/http.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::http_fuzzer {

ATOLL_FUZZ_TARGET(http) {
  const MemoryLimit limit(ProportionalBytes(size));
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  HttpRequest request, early_request;
  HttpRefusal refusal, early_refusal;
  const ParseState state = ParseRequest(bytes, &request, &refusal);
  const ParseState early = ParseRequest(bytes.substr(0, size / 2), &early_request, &early_refusal);
  ATOLL_CHECK(early == ParseState::kIncomplete || early == state);
  switch (state) {
    case ParseState::kIncomplete:
      ATOLL_CHECK(size < kMaxRequestBytes);
      break;
    case ParseState::kRefused:
      ATOLL_CHECK(refusal.status >= 400 && refusal.status < 600 && !refusal.sentence.empty());
      if (early == state) ATOLL_CHECK(early_refusal.status == refusal.status);
      break;
    case ParseState::kComplete:
      ATOLL_CHECK(request.path.starts_with('/') && request.path.size() <= kMaxRequestLineBytes);
      for (const char c : request.path + request.query + request.host) {
        ATOLL_CHECK(c > 0x20 && c < 0x7f);
      }
      ATOLL_CHECK(QueryValue(request.query, "viewer").size() <= request.query.size());
      if (IsServedHost(request.host, {"127.0.0.1", true, {}})) {
        ATOLL_CHECK(IsServedHost(request.host, {"0.0.0.0", false, {}}));
      }
      if (!request.fetch_site.empty() && request.fetch_site != "none" &&
          request.fetch_site != "same-origin" && request.fetch_mode.empty()) {
        ATOLL_CHECK(IsForeign(request, "http"));
      }
      if (early == state) ATOLL_CHECK(early_request.path == request.path);
      break;
  }
  return 0;
}

}  // namespace atollrt::http_fuzzer
