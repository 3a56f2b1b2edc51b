// SPDX-License-Identifier: Apache-2.0
#include "examples/camera/fashion_mnist.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "examples/picture/file_io.h"

namespace atollrt {
namespace {

// The contents of `path`, or of `path`.gz; *opened is which.
Status ReadMaybeGzipped(const std::string& path, size_t max_bytes, std::string* opened,
                        std::vector<uint8_t>* bytes) {
  *opened = path;
  gzFile file = gzopen(path.c_str(), "rb");  // reads uncompressed files as they are
  if (file == nullptr && errno == ENOENT) {
    *opened = path + ".gz";
    file = gzopen(opened->c_str(), "rb");
  }
  if (file == nullptr) return FileError(*opened, "open", errno != 0 ? errno : ENOMEM);
  constexpr unsigned kChunkBytes = 1 << 20;
  Status status;
  bytes->clear();
  while (true) {
    const size_t size = bytes->size();
    bytes->resize(size + kChunkBytes);
    const int got = gzread(file, bytes->data() + size, kChunkBytes);
    bytes->resize(size + static_cast<size_t>(std::max(got, 0)));
    int error = Z_OK;
    const char* message = gzerror(file, &error);
    if (got < 0 || (error != Z_OK && error != Z_STREAM_END)) {
      status = InvalidArgument("%s: cannot read: %s", opened->c_str(), message);
      break;
    }
    if (got == 0) break;
    if (bytes->size() > max_bytes) {
      status = ResourceExhausted("%s: more than %zu bytes", opened->c_str(), max_bytes);
      break;
    }
  }
  gzclose(file);
  return status;
}

uint32_t LoadBigEndian32(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

// An IDX file of unsigned bytes: magic 0x0000080D for D dimensions, their sizes, then the values.
// Checks that all dimensions but the first are `inner` and returns the first; the values begin at
// byte 4 + 4 * D.
Result<size_t> CheckIdx(const std::string& path, std::span<const uint8_t> bytes,
                        std::span<const uint32_t> inner) {
  const size_t header_bytes = 4 + 4 * (1 + inner.size());
  if (bytes.size() < header_bytes) {
    return InvalidArgument("%s: %zu bytes are too few for an IDX header", path.c_str(),
                           bytes.size());
  }
  const auto magic = static_cast<uint32_t>(0x800 + 1 + inner.size());
  if (LoadBigEndian32(bytes.data()) != magic) {
    return InvalidArgument("%s: not an IDX file of %zu dimensions: magic %08x, not %08x",
                           path.c_str(), 1 + inner.size(), LoadBigEndian32(bytes.data()), magic);
  }
  const uint64_t count = LoadBigEndian32(bytes.data() + 4);
  uint64_t item_bytes = 1;
  for (size_t i = 0; i < inner.size(); ++i) {
    const uint32_t size = LoadBigEndian32(bytes.data() + 8 + 4 * i);
    if (size != inner[i]) {
      return InvalidArgument("%s: dimension %zu is %u, not %u", path.c_str(), i + 1, size,
                             inner[i]);
    }
    item_bytes *= size;
  }
  if (bytes.size() - header_bytes != count * item_bytes) {
    return InvalidArgument("%s: %llu items take %llu bytes, but %zu are present", path.c_str(),
                           static_cast<unsigned long long>(count),
                           static_cast<unsigned long long>(count * item_bytes),
                           bytes.size() - header_bytes);
  }
  return static_cast<size_t>(count);
}

}  // namespace

Result<FashionMnist> ReadFashionMnistTestSet(const std::string& directory) {
  constexpr size_t kMaxBytes = size_t{1} << 28;
  constexpr uint32_t kPictureSize[] = {kFashionMnistSide, kFashionMnistSide};
  FashionMnist set;
  std::string path;
  ATOLL_RETURN_IF_ERROR(
      ReadMaybeGzipped(directory + "/t10k-images-idx3-ubyte", kMaxBytes, &path, &set.pixels));
  ATOLL_ASSIGN_OR_RETURN(const size_t picture_count, CheckIdx(path, set.pixels, kPictureSize));
  set.pixels.erase(set.pixels.begin(), set.pixels.begin() + 16);
  ATOLL_RETURN_IF_ERROR(
      ReadMaybeGzipped(directory + "/t10k-labels-idx1-ubyte", kMaxBytes, &path, &set.labels));
  ATOLL_ASSIGN_OR_RETURN(const size_t label_count, CheckIdx(path, set.labels, {}));
  set.labels.erase(set.labels.begin(), set.labels.begin() + 8);
  if (picture_count != label_count || picture_count == 0) {
    return InvalidArgument("%s: %zu labels for %zu pictures", path.c_str(), label_count,
                           picture_count);
  }
  return set;
}

}  // namespace atollrt
