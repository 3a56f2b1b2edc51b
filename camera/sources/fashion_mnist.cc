// SPDX-License-Identifier: Apache-2.0
//
// The test set of Fashion-MNIST, from the two IDX files that it is distributed as.
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "camera/picture/file_io.h"
#include "camera/sources/sources.h"

namespace atollrt {
namespace {

uint32_t LoadBigEndian32(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

// `path`, or `path`.gz, whose name `path` has then. Reads uncompressed files as they are.
Result<gzFile> OpenCompressed(std::string* path) {
  Result<int> fd = OpenRegularFile(*path);
  if (fd.code() == StatusCode::kNotFound) {
    *path += ".gz";
    fd = OpenRegularFile(*path);
  }
  if (!fd.ok()) return fd.status();
  if (gzFile file = gzdopen(*fd, "rb")) return file;
  close(*fd);
  return FileError(*path, "open", ENOMEM);
}

// Appends up to `count` bytes, fewer at the end of the file.
Status Append(const std::string& path, gzFile file, size_t count, std::vector<uint8_t>* bytes) {
  constexpr size_t kChunkBytes = size_t{1} << 16;
  const size_t wanted = bytes->size() + count;
  while (bytes->size() < wanted) {
    const size_t size = bytes->size();
    const size_t chunk = std::min(kChunkBytes, wanted - size);
    bytes->resize(size + chunk);
    const int got = gzread(file, bytes->data() + size, static_cast<unsigned>(chunk));
    bytes->resize(size + static_cast<size_t>(std::max(got, 0)));
    int error = Z_OK;
    const char* message = gzerror(file, &error);
    if (got < 0 || (error != Z_OK && error != Z_STREAM_END)) {
      return InvalidArgument("%s: cannot read: %s", path.c_str(), message);
    }
    if (got == 0) break;
  }
  return Status();
}

// The values of a file of unsigned bytes, compressed or not: magic 0x0000080D for D dimensions,
// their sizes, then the values, of which there is memory for no more than the file has. All
// dimensions but the first must be `inner`.
Result<std::vector<uint8_t>> ReadIdx(std::string path, std::span<const uint32_t> inner) {
  constexpr uint32_t kMostItems = 100'000;  // the training set, too
  ATOLL_ASSIGN_OR_RETURN(gzFile_s* const opened, OpenCompressed(&path));
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(opened, &gzclose);
  std::vector<uint8_t> bytes;
  const size_t header_bytes = 4 + 4 * (1 + inner.size());
  ATOLL_RETURN_IF_ERROR(Append(path, file.get(), header_bytes, &bytes));
  if (bytes.size() < header_bytes) {
    return InvalidArgument("%s: %zu bytes are too few for an IDX header", path.c_str(),
                           bytes.size());
  }
  const auto magic = static_cast<uint32_t>(0x800 + 1 + inner.size());
  if (LoadBigEndian32(bytes.data()) != magic) {
    return InvalidArgument("%s: not an IDX file of %zu dimensions: magic %08x, not %08x",
                           path.c_str(), 1 + inner.size(), LoadBigEndian32(bytes.data()), magic);
  }
  const uint32_t count = LoadBigEndian32(bytes.data() + 4);
  size_t size = count;
  for (size_t i = 0; i < inner.size(); ++i) {
    const uint32_t side = LoadBigEndian32(bytes.data() + 8 + 4 * i);
    if (side != inner[i]) {
      return InvalidArgument("%s: dimension %zu is %u, not %u", path.c_str(), i + 1, side,
                             inner[i]);
    }
    size *= side;
  }
  if (count > kMostItems) {
    return ResourceExhausted("%s: %u items are above the limit of %u", path.c_str(), count,
                             kMostItems);
  }
  bytes.clear();
  ATOLL_RETURN_IF_ERROR(Append(path, file.get(), size + 1, &bytes));
  if (bytes.size() == size) return bytes;
  return InvalidArgument("%s: %u items take %zu bytes, but %s%zu are present", path.c_str(), count,
                         size, bytes.size() > size ? "at least " : "", bytes.size());
}

}  // namespace

Result<FashionMnist> ReadFashionMnistTestSet(const std::string& directory) {
  constexpr uint32_t kPictureSize[] = {kFashionMnistSide, kFashionMnistSide};
  FashionMnist set;
  ATOLL_ASSIGN_OR_RETURN(set.pixels, ReadIdx(directory + "/t10k-images-idx3-ubyte", kPictureSize));
  ATOLL_ASSIGN_OR_RETURN(set.labels, ReadIdx(directory + "/t10k-labels-idx1-ubyte", {}));
  const size_t picture_count = set.pixels.size() / kFashionMnistPixels;
  if (picture_count != set.count() || picture_count == 0) {
    return InvalidArgument("%s: %zu labels for %zu pictures", directory.c_str(), set.count(),
                           picture_count);
  }
  return set;
}

}  // namespace atollrt
