// SPDX-License-Identifier: Apache-2.0
//
// MJPEG and Y4M through a pipe, in pieces of sizes that the first four bytes say. In whatever
// pieces they arrive, the frames are those of a file with the same bytes, and memory is in
// proportion to what has arrived. (frames_fuzzer decodes them.)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/camera/frame_source.h"
#include "atoll/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::pipe_fuzzer {

namespace {

constexpr size_t kPieces = 4;
constexpr size_t kPacketBytes = 4096;
constexpr int kFrames = 64;

struct FrameShape {
  FrameFormat format = FrameFormat::kEncoded;
  int width = 0;
  int height = 0;
  size_t size = 0;
  uint64_t hash = 0;
  bool operator==(const FrameShape&) const = default;
};

std::vector<FrameShape> ReadFrames(int fd, bool* good_end) {
  std::vector<FrameShape> frames;
  *good_end = false;
  const auto source = OpenFrameSource("/proc/self/fd/" + std::to_string(fd), {});
  if (!source.ok()) return frames;
  Frame frame;
  while (frames.size() < kFrames) {
    const Result<bool> got = (*source)->Next(&frame);
    *good_end = got.ok();
    if (!got.ok() || !*got) break;
    uint64_t hash = 1469598103934665603u;
    for (const uint8_t byte : frame.bytes) hash = (hash ^ byte) * 1099511628211u;
    frames.push_back({frame.format, frame.width, frame.height, frame.bytes.size(), hash});
    ATOLL_CHECK(frame.sequence == frames.size() - 1);
  }
  return frames;
}

// Each write is one read on the other side: the pipe is in packet mode. False if it does not have
// room for all.
bool WritePackets(std::span<const uint8_t> bytes, std::span<const uint8_t> pieces, int fd) {
  fcntl(fd, F_SETPIPE_SZ, 1 << 20);
  size_t packets = static_cast<size_t>(fcntl(fd, F_GETPIPE_SZ)) / kPacketBytes;
  if (bytes.size() > packets * kPacketBytes) return false;
  for (size_t piece = 0; !bytes.empty(); ++piece, --packets) {
    // No less than leaves room for the rest.
    const size_t least = bytes.size() - std::min(bytes.size(), (packets - 1) * kPacketBytes);
    size_t size = std::max(least, size_t{1} + pieces[piece % pieces.size()]);
    if (packets == 1) size = bytes.size();
    size = std::min({size, bytes.size(), kPacketBytes});
    if (write(fd, bytes.data(), size) != static_cast<ssize_t>(size)) return false;
    bytes = bytes.subspan(size);
  }
  return true;
}

}  // namespace

ATOLL_FUZZ_TARGET(pipe) {
  if (size < kPieces) return 0;
  const std::span<const uint8_t> bytes(data + kPieces, size - kPieces);
  int ends[2];
  ATOLL_CHECK(pipe2(ends, O_CLOEXEC | O_DIRECT | O_NONBLOCK) == 0);
  const bool written = WritePackets(bytes, {data, kPieces}, ends[1]);
  const int fd = memfd_create("frames", MFD_CLOEXEC);
  ATOLL_CHECK(fd >= 0);
  ATOLL_CHECK(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  close(ends[1]);
  if (written) {
    bool pipe_end = false, file_end = false;
    const MemoryLimit limit(ProportionalBytes(size, int64_t{1} << 18));
    const std::vector<FrameShape> through_pipe = ReadFrames(ends[0], &pipe_end);
    const std::vector<FrameShape> from_file = ReadFrames(fd, &file_end);
    ATOLL_CHECK(through_pipe == from_file && pipe_end == file_end);
  }
  close(ends[0]);
  close(fd);
  return 0;
}

}  // namespace atollrt::pipe_fuzzer
