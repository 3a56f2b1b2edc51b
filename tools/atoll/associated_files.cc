// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/associated_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>
#include <vector>

namespace atollcmd {
namespace {

// The parts of a ZIP archive (PKWARE's APPNOTE.TXT): the record at its end says where the directory
// is, which says where the files are. All numbers are little-endian.
constexpr std::string_view kEndSignature = "PK\5\6";
constexpr std::string_view kEntrySignature = "PK\1\2";
constexpr std::string_view kFileSignature = "PK\3\4";
constexpr size_t kEndBytes = 22;
constexpr size_t kEntryBytes = 46;
constexpr size_t kFileBytes = 30;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kEncrypted = 1;  // a flag
constexpr size_t kCommentBytesMax = 65535;
constexpr size_t kDirectoryBytesMax = size_t{1} << 20;
// Kilobytes may promise so much.
constexpr size_t kTextBytesMax = size_t{1} << 22;

uint32_t LittleEndian(std::string_view bytes, size_t offset, size_t size) {
  uint32_t number = 0;
  for (size_t i = size; i-- > 0;) {
    number = number << 8 | static_cast<uint8_t>(bytes[offset + i]);
  }
  return number;
}
uint16_t U16(std::string_view bytes, size_t offset) {
  return static_cast<uint16_t>(LittleEndian(bytes, offset, 2));
}
uint32_t U32(std::string_view bytes, size_t offset) { return LittleEndian(bytes, offset, 4); }

// A file to read pieces of.
class FilePieces {
 public:
  explicit FilePieces(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat info = {};
    if (fd_ >= 0 && fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) {
      size_ = static_cast<uint64_t>(info.st_size);
    }
  }
  ~FilePieces() {
    if (fd_ >= 0) close(fd_);
  }
  FilePieces(const FilePieces&) = delete;
  FilePieces& operator=(const FilePieces&) = delete;

  uint64_t size() const { return size_; }
  // Nothing if that is not all in the file.
  std::optional<std::string> Read(uint64_t offset, size_t size) const {
    if (offset > size_ || size > size_ - offset) return {};
    std::string bytes(size, '\0');
    size_t done = 0;
    while (done < size) {
      const ssize_t count =
          pread(fd_, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
      if (count <= 0) return {};
      done += static_cast<size_t>(count);
    }
    return bytes;
  }

 private:
  const int fd_;
  uint64_t size_ = 0;
};

struct ArchiveEntry {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t stored_bytes = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;  // of its header in the file
};

std::vector<ArchiveEntry> ReadDirectory(const FilePieces& file) {
  const auto tail_size =
      static_cast<size_t>(std::min<uint64_t>(file.size(), kEndBytes + kCommentBytesMax));
  const uint64_t tail_offset = file.size() - tail_size;
  const auto tail = file.Read(tail_offset, tail_size);
  if (!tail || tail_size < kEndBytes) return {};
  const size_t end = tail->rfind(kEndSignature, tail_size - kEndBytes);
  if (end == std::string::npos) return {};
  const uint64_t size = U32(*tail, end + 12);
  const uint64_t offset = U32(*tail, end + 16);
  // Offsets count from the beginning of the archive, or from that of the file.
  if (size > kDirectoryBytesMax || size + offset > tail_offset + end) return {};
  const uint64_t begin = tail_offset + end - size;
  const uint64_t archive = begin - offset;
  const auto directory = file.Read(begin, static_cast<size_t>(size));
  if (!directory) return {};
  std::vector<ArchiveEntry> entries;
  for (std::string_view rest = *directory;
       rest.size() >= kEntryBytes && rest.starts_with(kEntrySignature);) {
    const size_t name_size = U16(rest, 28);
    const size_t entry_size = kEntryBytes + name_size + U16(rest, 30) + U16(rest, 32);
    if (entry_size > rest.size()) break;
    entries.push_back({.name = std::string(rest.substr(kEntryBytes, name_size)),
                       .flags = U16(rest, 8),
                       .method = U16(rest, 10),
                       .stored_bytes = U32(rest, 20),
                       .bytes = U32(rest, 24),
                       .offset = archive + U32(rest, 42)});
    rest.remove_prefix(entry_size);
  }
  return entries;
}

std::optional<std::string> InflateText(const std::string& stored, size_t bytes) {
  std::string text(bytes, '\0');
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  const bool whole = result == Z_STREAM_END && stream.total_out == bytes;
  inflateEnd(&stream);
  if (!whole) return {};
  return text;
}

std::optional<std::string> ReadEntry(const FilePieces& file, const ArchiveEntry& entry) {
  if (entry.bytes > kTextBytesMax || entry.stored_bytes > kTextBytesMax) return {};
  if ((entry.flags & kEncrypted) != 0) return {};
  const auto header = file.Read(entry.offset, kFileBytes);
  if (!header || !header->starts_with(kFileSignature)) return {};
  auto stored = file.Read(entry.offset + kFileBytes + U16(*header, 26) + U16(*header, 28),
                          entry.stored_bytes);
  if (!stored) return {};
  if (entry.method == kStored && entry.stored_bytes == entry.bytes) return stored;
  // What is made of a byte is at most 1032 bytes: a greater promise is not kept.
  if (entry.method == kDeflated && entry.bytes / 1032 <= entry.stored_bytes) {
    return InflateText(*stored, entry.bytes);
  }
  return {};
}

std::string SmallLetters(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

std::optional<AssociatedFile> FindEmbeddedLabels(const std::string& model) {
  const FilePieces file(model);
  std::vector<ArchiveEntry> texts = ReadDirectory(file);
  std::erase_if(
      texts, [](const ArchiveEntry& entry) { return !SmallLetters(entry.name).ends_with(".txt"); });
  const auto labels = std::find_if(texts.begin(), texts.end(), [](const ArchiveEntry& entry) {
    return SmallLetters(entry.name).find("label") != std::string::npos;
  });
  if (labels == texts.end() && texts.size() != 1) return {};
  const ArchiveEntry& entry = labels == texts.end() ? texts.front() : *labels;
  std::optional<std::string> text = ReadEntry(file, entry);
  if (!text) return {};
  return AssociatedFile{entry.name, *std::move(text)};
}

}  // namespace atollcmd
