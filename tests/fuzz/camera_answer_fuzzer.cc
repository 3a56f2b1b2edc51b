// SPDX-License-Identifier: Apache-2.0
//
// What a network camera may answer, in pieces of sizes that the first four bytes say. In whatever
// pieces it arrives, the same pictures are found and it ends in the same way; memory is in
// proportion to what has arrived; and no redirect leaves the server or says a login. The bytes as
// an address, too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/check.h"
#include "camera/sources/http_camera.h"
#include "camera/sources/mjpeg.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::camera_answer_fuzzer {

namespace {

constexpr size_t kPieces = 4;

// What became of an answer.
struct Outcome {
  uint64_t pictures = 0;
  uint64_t picture_bytes = 0;
  uint64_t hash = 1469598103934665603u;  // of the pictures: they need not be in memory all at once
  std::string location = {};
  std::string sentence = {};
  bool operator==(const Outcome&) const = default;
};

// As the source does it.
Outcome Receive(std::span<const uint8_t> bytes, std::span<const uint8_t> pieces) {
  Outcome outcome;
  CameraAnswer answer;
  JpegSplitter splitter;
  std::vector<uint8_t> body, picture;
  size_t piece = 0;
  Status status;
  while (!bytes.empty() && status.ok() && !answer.ended()) {
    const size_t wanted =
        pieces.empty() ? bytes.size() : size_t{1} + pieces[piece++ % pieces.size()];
    const std::span<const uint8_t> next = bytes.first(std::min(wanted, bytes.size()));
    bytes = bytes.subspan(next.size());
    body.clear();
    status = answer.Receive(next, &body);
    ATOLL_CHECK(body.size() <= next.size());
    if (!status.ok()) ATOLL_CHECK(answer.ended());
    if (!status.ok() || !answer.has_head()) continue;
    if (answer.redirects()) {
      outcome.location = answer.location();
      break;
    }
    status = answer.Check();
    if (!status.ok()) break;
    ATOLL_CHECK(answer.status() == 200);
    splitter.Append(body);
    while (true) {
      const Result<bool> found = splitter.Next(&picture);
      if (!found.ok()) status = found.status();
      if (!found.ok() || !*found) break;
      ATOLL_CHECK(picture.size() >= 3 && picture[0] == 0xff && picture[1] == 0xd8);
      ++outcome.pictures;
      outcome.picture_bytes += picture.size();
      for (const uint8_t byte : picture) outcome.hash = (outcome.hash ^ byte) * 1099511628211u;
      (void)ReadJpegSize(picture);
    }
  }
  // A body that is wrong further on has given its pictures before or after that is known: what it
  // was cut into decides.
  if (!status.ok() && answer.has_head()) outcome = {.sentence = "wrong in the body"};
  if (!status.ok() && !answer.has_head()) outcome = {.sentence = status.message()};
  return outcome;
}

void CheckRedirect(std::string_view location) {
  const CameraUrl from = *ParseCameraUrl("http://me:s3cret@cam.example:81/a/b?c");
  const Result<CameraUrl> to = FollowRedirect(from, location);
  if (!to.ok()) {
    ATOLL_CHECK(to.status().message().find("s3cret") == std::string::npos ||
                location.find("s3cret") != std::string_view::npos);
    for (const char c : to.status().message()) ATOLL_CHECK(c >= 0x20 && c < 0x7f);
    return;
  }
  ATOLL_CHECK(to->host.size() == from.host.size() && to->port == from.port);
  ATOLL_CHECK(to->path.starts_with('/') && to->login == from.login);
  const std::string request = FormatCameraRequest(*to);
  ATOLL_CHECK(request.find("\r\n\r\n") == request.size() - 4);
  ATOLL_CHECK(std::count(request.begin(), request.end(), '\n') == 8);  // nobody adds a header
}

void CheckAddress(std::string_view text) {
  const std::string address = "http://" + std::string(text);
  const Result<CameraUrl> url = ParseCameraUrl(address);
  if (!url.ok()) return;
  ATOLL_CHECK(!url->host.empty() && url->port >= 1 && url->port <= 65535);
  ATOLL_CHECK(url->path.starts_with('/'));
  ATOLL_CHECK(url->Name().find('@', 7) == std::string::npos ||
              url->Name().find('/', 7) < url->Name().find('@', 7));
  CheckRedirect(url->path);
}

}  // namespace

ATOLL_FUZZ_TARGET(camera_answer) {
  if (size < kPieces) return 0;
  const std::span<const uint8_t> bytes(data + kPieces, size - kPieces);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const MemoryLimit limit(ProportionalBytes(size));
  const Outcome whole = Receive(bytes, {});
  const Outcome in_pieces = Receive(bytes, {data, kPieces});
  ATOLL_CHECK(whole == in_pieces);
  if (!whole.location.empty()) CheckRedirect(whole.location);
  CheckRedirect(text.substr(0, 1000));
  CheckAddress(text.substr(0, 1000));
  return 0;
}

}  // namespace atollrt::camera_answer_fuzzer
