// SPDX-License-Identifier: Apache-2.0
#include "camera/sources/fashion_mnist.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "camera/picture/file_io.h"

namespace atollrt {
namespace {

uint32_t LoadBigEndian32(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

// Reads a file that may be compressed.
class IdxFile {
 public:
  // `path`, or `path`.gz.
  explicit IdxFile(std::string path) : path_(std::move(path)) {}
  ~IdxFile() {
    if (file_ != nullptr) gzclose(file_);
  }
  IdxFile(const IdxFile&) = delete;
  IdxFile& operator=(const IdxFile&) = delete;

  // The values of a file of unsigned bytes: magic 0x0000080D for D dimensions, their sizes, then
  // the values, of which there is memory for no more than the file has, and at most `most` items.
  // All dimensions but the first must be `inner`.
  Status Read(std::span<const uint32_t> inner, uint64_t most, std::vector<uint8_t>* values) {
    ATOLL_RETURN_IF_ERROR(Open());
    std::vector<uint8_t> header;
    const size_t header_bytes = 4 + 4 * (1 + inner.size());
    ATOLL_RETURN_IF_ERROR(Append(header_bytes, &header));
    if (header.size() < header_bytes) {
      return InvalidArgument("%s: %zu bytes are too few for an IDX header", path_.c_str(),
                             header.size());
    }
    ATOLL_ASSIGN_OR_RETURN(const uint64_t count, CheckHeader(header, inner));
    if (count > most) {
      return ResourceExhausted("%s: %llu items are above the limit of %llu", path_.c_str(),
                               static_cast<unsigned long long>(count),
                               static_cast<unsigned long long>(most));
    }
    uint64_t size = count;
    for (const uint32_t side : inner) size *= side;
    values->clear();
    ATOLL_RETURN_IF_ERROR(Append(static_cast<size_t>(size) + 1, values));
    if (values->size() == size) return Status();
    return InvalidArgument("%s: %llu items take %llu bytes, but %s%zu are present", path_.c_str(),
                           static_cast<unsigned long long>(count),
                           static_cast<unsigned long long>(size),
                           values->size() > size ? "at least " : "", values->size());
  }

 private:
  Status Open() {
    Result<int> fd = OpenRegularFile(path_);
    if (fd.code() == StatusCode::kNotFound) {
      path_ += ".gz";
      fd = OpenRegularFile(path_);
    }
    if (!fd.ok()) return fd.status();
    file_ = gzdopen(*fd, "rb");  // reads uncompressed files as they are
    if (file_ != nullptr) return Status();
    close(*fd);
    return FileError(path_, "open", ENOMEM);
  }

  // Up to `count` bytes, fewer at the end of the file.
  Status Append(size_t count, std::vector<uint8_t>* bytes) {
    constexpr size_t kChunkBytes = size_t{1} << 16;
    const size_t wanted = bytes->size() + count;
    while (bytes->size() < wanted) {
      const size_t size = bytes->size();
      const size_t chunk = std::min(kChunkBytes, wanted - size);
      bytes->resize(size + chunk);
      const int got = gzread(file_, bytes->data() + size, static_cast<unsigned>(chunk));
      bytes->resize(size + static_cast<size_t>(std::max(got, 0)));
      int error = Z_OK;
      const char* message = gzerror(file_, &error);
      if (got < 0 || (error != Z_OK && error != Z_STREAM_END)) {
        return InvalidArgument("%s: cannot read: %s", path_.c_str(), message);
      }
      if (got == 0) break;
    }
    return Status();
  }

  // How many items follow.
  Result<uint64_t> CheckHeader(std::span<const uint8_t> header,
                               std::span<const uint32_t> inner) const {
    const auto magic = static_cast<uint32_t>(0x800 + 1 + inner.size());
    if (LoadBigEndian32(header.data()) != magic) {
      return InvalidArgument("%s: not an IDX file of %zu dimensions: magic %08x, not %08x",
                             path_.c_str(), 1 + inner.size(), LoadBigEndian32(header.data()),
                             magic);
    }
    for (size_t i = 0; i < inner.size(); ++i) {
      const uint32_t size = LoadBigEndian32(header.data() + 8 + 4 * i);
      if (size != inner[i]) {
        return InvalidArgument("%s: dimension %zu is %u, not %u", path_.c_str(), i + 1, size,
                               inner[i]);
      }
    }
    return LoadBigEndian32(header.data() + 4);
  }

  std::string path_;  // the one that is open
  gzFile file_ = nullptr;
};

}  // namespace

Result<FashionMnist> ReadFashionMnistTestSet(const std::string& directory) {
  constexpr uint64_t kMostPictures = 100'000;  // the training set, too
  constexpr uint32_t kPictureSize[] = {kFashionMnistSide, kFashionMnistSide};
  FashionMnist set;
  ATOLL_RETURN_IF_ERROR(IdxFile(directory + "/t10k-images-idx3-ubyte")
                            .Read(kPictureSize, kMostPictures, &set.pixels));
  ATOLL_RETURN_IF_ERROR(
      IdxFile(directory + "/t10k-labels-idx1-ubyte").Read({}, kMostPictures, &set.labels));
  const size_t picture_count = set.pixels.size() / kFashionMnistPixels;
  if (picture_count != set.count() || picture_count == 0) {
    return InvalidArgument("%s: %zu labels for %zu pictures", directory.c_str(), set.count(),
                           picture_count);
  }
  return set;
}

}  // namespace atollrt
