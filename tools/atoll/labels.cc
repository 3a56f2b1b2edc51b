// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/labels.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/report.h"

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
// A kilobyte may promise so much.
constexpr size_t kTextBytesMax = size_t{1} << 20;

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

// A file to read pieces of, and its size.
struct File {
  explicit File(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return;
    size = std::filesystem::file_size(path, error);
    stream.open(path, std::ios::binary);
  }
  // Nothing if that is not all in the file.
  std::optional<std::string> Read(uint64_t offset, size_t count) {
    if (offset > size || count > size - offset) return {};
    std::string bytes(count, '\0');
    stream.seekg(static_cast<std::streamoff>(offset));
    if (!stream.read(bytes.data(), static_cast<std::streamsize>(count))) return {};
    return bytes;
  }

  std::ifstream stream;
  uint64_t size = 0;
};

struct ArchiveEntry {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t stored_bytes = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;  // of its header in the file
};

std::vector<ArchiveEntry> ReadDirectory(File& file) {
  const auto tail_size =
      static_cast<size_t>(std::min<uint64_t>(file.size, kEndBytes + kCommentBytesMax));
  const uint64_t tail_offset = file.size - tail_size;
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

std::optional<std::string> ReadEntry(File& file, const ArchiveEntry& entry) {
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

struct AssociatedFile {
  std::string name;  // in the archive
  std::string text;
};

// The label file that a model brings along in a ZIP archive at its end, as TensorFlow Lite's
// metadata writers append it: the first text file whose name has "label" in it, or the only text
// file. Nothing if there is none, or if the archive, whose bytes are hostile, is damaged or keeps
// it in a way that nobody writes. At most 1 MiB.
std::optional<AssociatedFile> FindEmbeddedLabels(const std::string& model) {
  File file(model);
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

constexpr std::string_view kBlanks = " \t";
constexpr size_t kMaxFileBytes = size_t{1} << 24;
constexpr size_t kMaxClasses = size_t{1} << 20;
constexpr size_t kMaxClassesLeftOut = size_t{1} << 16;

struct NumberedLine {
  size_t number;
  std::string_view name;
};

std::optional<NumberedLine> ParseNumberedLine(std::string_view line) {
  NumberedLine numbered = {};
  const char* end = line.data() + line.size();
  const auto [number_end, error] = std::from_chars(line.data(), end, numbered.number);
  if (error != std::errc() || number_end == end || numbered.number >= kMaxClasses) return {};
  line.remove_prefix(static_cast<size_t>(number_end - line.data()));
  const size_t name = line.find_first_not_of(line[0] == ':' ? ": \t" : kBlanks);
  if (name == 0 || name == std::string_view::npos) return {};
  numbered.name = line.substr(name);
  return numbered;
}

// The names if all lines are numbered, in ascending order, without large gaps.
std::optional<std::vector<std::string>> ParseNumbered(const std::vector<std::string_view>& lines) {
  std::vector<std::string> names;
  for (const std::string_view line : lines) {
    const std::optional<NumberedLine> numbered = ParseNumberedLine(line);
    if (!numbered || numbered->number < names.size()) return {};
    if (numbered->number > lines.size() + kMaxClassesLeftOut) return {};
    names.resize(numbered->number + 1);
    names.back() = numbered->name;
  }
  return names;
}

std::string ReadTextFile(const std::string& path) {
  const auto fail = [&](const char* verb, const std::string& why) {
    Fail(ExitCode::kFailure, "cannot {} the label file '{}': {}", verb, path, why);
  };
  std::string text = ReadBeginning(path, kMaxFileBytes + 1, fail);
  if (text.size() > kMaxFileBytes) fail("use", "it is larger than 16 MiB; check the path");
  return text;
}

// What label files call a class that is no thing. A number left out has an empty name.
bool NamesNothing(std::string_view name) {
  constexpr std::string_view kNothing[] = {"",     "???",       "background", "__background__",
                                           "none", "unlabeled", "bg"};
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(std::begin(kNothing), std::end(kNothing), lower) != std::end(kNothing);
}

}  // namespace

std::vector<std::string> ParseLabels(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string_view> lines;
  // What follows would name classes that no model has, at many times its bytes.
  while (!text.empty() && lines.size() < kMaxClasses) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    lines.push_back(line);
    text.remove_prefix(std::min(newline + 1, text.size()));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (auto numbered = ParseNumbered(lines)) return *std::move(numbered);
  return std::vector<std::string>(lines.begin(), lines.end());
}

void AddLabelOptions(Command* command, LabelOptions* options) {
  command->Add("--labels", options->path);
  command->Add("--label-offset", options->offset)->check(CLI::Range(-1000, 1000));
}

Labels::Labels(const LabelOptions& options, const LabelRule& rule, bool lenient) {
  std::string path = options.path;
  std::string text;
  bool embedded = false;
  if (!path.empty()) {
    text = ReadTextFile(path);
  } else if (std::optional<AssociatedFile> found = FindEmbeddedLabels(options.model)) {
    path = fmt::format("{}, in '{}'", Printable(found->name), options.model);
    text = std::move(found->text);
    embedded = true;
  } else {
    if (!options.offset) return;
    Fail(ExitCode::kUsage, "--label-offset shifts labels, and the model has none; give --labels");
  }
  names_ = ParseLabels(text);
  for (std::string& name : names_) name = Printable(name);
  offset_ = options.offset.value_or(
      rule.without_background && !names_.empty() && NamesNothing(names_[0]) ? 1 : 0);
  std::optional<Finding> finding = LintLabels(path, names_, offset_, rule.classes);
  if (!finding) return;
  const bool too_few = static_cast<int64_t>(names_.size()) - offset_ < rule.classes.least;
  if (too_few && embedded) names_.clear();
  if (too_few && !embedded && !lenient) throw CommandError(ExitCode::kUsage, finding->message);
  warnings_.push_back(*std::move(finding));
}

const std::string& Labels::operator[](int class_index) const {
  static const std::string none;
  const int64_t label = int64_t{class_index} + offset_;
  if (label < 0 || label >= static_cast<int64_t>(names_.size())) return none;
  return names_[static_cast<size_t>(label)];
}

std::string Labels::NameOf(int class_index) const {
  const std::string& name = (*this)[class_index];
  return name.empty() ? fmt::format("class {}", class_index) : name;
}

}  // namespace atollcmd
