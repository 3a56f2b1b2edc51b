// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/dataset.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

namespace fs = std::filesystem;
using atollrt::Task;

atollrt::Image ReadPicture(const std::string& path, int channels) {
  atollrt::DecodeOptions decode;
  decode.channels = channels;
  auto image = atollrt::ReadImageFile(path, decode);
  if (image.ok()) return *std::move(image);
  Fail(ExitCode::kFailure, "cannot use the picture: {}; leave it out", image.status().message());
}

// Sorted names of what is in a folder, of folders or of files.
std::vector<std::string> NamesIn(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    const bool wanted = folders ? entry->is_directory(unknown) : entry->is_regular_file(unknown);
    const std::string name = entry->path().filename().string();
    if (wanted && !name.starts_with('.')) names.push_back(name);
  }
  if (error) {
    Fail(ExitCode::kFailure, "cannot read the folder '{}': {}; {}", folder.string(),
         error.message(), AdviseReading(error.value()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Index by name, if all names are there.
std::optional<std::vector<int>> ByLabels(const std::vector<std::string>& names,
                                         const std::vector<std::string>& labels) {
  std::map<std::string_view, int> index_of;  // the first of several of the same name
  for (size_t i = 0; i < labels.size(); ++i) index_of.emplace(labels[i], static_cast<int>(i));
  std::vector<int> indices;
  for (const std::string& name : names) {
    const auto found = index_of.find(name);
    if (found == index_of.end()) return std::nullopt;
    indices.push_back(found->second);
  }
  return indices;
}

// ---- Fashion-MNIST, and MNIST -------------------------------------------------------------------

class Idx : public DataSet {
 public:
  Idx(const std::string& images, const std::string& labels) {
    const std::vector<uint8_t> header = Read(images, 16, nullptr);
    if (Number(header, 0) != 0x803) Refuse(images, "begins with other bytes than such pictures");
    count_ = Number(header, 4);
    height_ = Number(header, 8);
    width_ = Number(header, 12);
    constexpr uint32_t kSideMax = 4096;
    constexpr uint64_t kBytesMax = uint64_t{1} << 30;
    if (count_ == 0 || width_ == 0 || height_ == 0 || width_ > kSideMax || height_ > kSideMax ||
        uint64_t{count_} * width_ * height_ > kBytesMax) {
      Refuse(images,
             fmt::format("says that it has {} pictures of {} x {}", count_, width_, height_));
    }
    pixels_ = Read(images, size_t{count_} * width_ * height_, &header);
    const std::vector<uint8_t> label_header = Read(labels, 8, nullptr);
    if (Number(label_header, 0) != 0x801 || Number(label_header, 4) != count_) {
      Refuse(labels, fmt::format("is not the classes of the {} pictures", count_));
    }
    labels_ = Read(labels, count_, &label_header);
  }

  Task task() const override { return Task::kClassify; }
  size_t size() const override { return count_; }
  int class_count() const override { return *std::max_element(labels_.begin(), labels_.end()) + 1; }
  KnownPicture Load(size_t index, int channels) const override {
    KnownPicture known;
    known.name = fmt::format("picture {}", index);
    known.label = labels_[index];
    known.picture.Reshape(static_cast<int>(width_), static_cast<int>(height_), channels);
    const uint8_t* const pixels = pixels_.data() + index * width_ * height_;
    for (size_t i = 0; i < known.picture.pixels.size(); ++i) {
      known.picture.pixels[i] = pixels[i / static_cast<size_t>(channels)];
    }
    return known;
  }

 private:
  [[noreturn]] static void Refuse(const std::string& path, const std::string& why) {
    Fail(ExitCode::kUsage, "'{}' {}; give the files of Fashion-MNIST", path, why);
  }
  static uint32_t Number(const std::vector<uint8_t>& bytes, size_t at) {
    return static_cast<uint32_t>(bytes[at]) << 24 | static_cast<uint32_t>(bytes[at + 1]) << 16 |
           static_cast<uint32_t>(bytes[at + 2]) << 8 | bytes[at + 3];
  }
  // `count` bytes behind `header`, or from the beginning; compressed or not.
  static std::vector<uint8_t> Read(const std::string& path, size_t count,
                                   const std::vector<uint8_t>* header) {
    const auto close = [](gzFile file) { gzclose(file); };
    const std::unique_ptr<gzFile_s, decltype(close)> file(gzopen(path.c_str(), "rb"), close);
    if (!file) {
      Fail(ExitCode::kFailure, "cannot open '{}': {}; {}", path, std::strerror(errno),
           AdviseReading(errno));
    }
    // In pieces, as a header may say more than there is.
    constexpr size_t kPieceMax = 1 << 20;
    std::vector<uint8_t> bytes;
    const auto read = [&](size_t wanted) {
      bytes.clear();
      while (bytes.size() < wanted) {
        const size_t before = bytes.size();
        const size_t piece = std::min(kPieceMax, wanted - before);
        bytes.resize(before + piece);
        if (gzread(file.get(), bytes.data() + before, static_cast<unsigned>(piece)) !=
            static_cast<int>(piece)) {
          Refuse(path, "ends too early");
        }
      }
    };
    if (header != nullptr) read(header->size());
    read(count);
    return bytes;
  }

  uint32_t count_ = 0;
  uint32_t width_ = 0;
  uint32_t height_ = 0;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> labels_;
};

// The file, or the same with .gz; "" if there is neither.
std::string IdxFile(const std::string& folder, const char* name) {
  for (const char* ending : {"", ".gz"}) {
    std::error_code error;
    std::string path = fmt::format("{}/{}{}", folder, name, ending);
    if (fs::exists(path, error)) return path;
  }
  return "";
}

// ---- Folders ------------------------------------------------------------------------------------

class ClassFolders : public DataSet {
 public:
  ClassFolders(const std::string& folder, const std::vector<std::string>& labels) {
    const std::vector<std::string> names = NamesIn(folder, true);
    const std::vector<int> classes = ClassesOf(names, labels);
    for (size_t i = 0; i < names.size(); ++i) {
      class_count_ = std::max(class_count_, classes[i] + 1);
      const fs::path inner = fs::path(folder) / names[i];
      for (const std::string& name : NamesIn(inner, false)) {
        pictures_.emplace_back((inner / name).string(), classes[i]);
      }
    }
    if (pictures_.empty()) {
      Fail(ExitCode::kUsage,
           "'{}' has no pictures in folders for their classes; 'atoll evaluate --help' says what "
           "data may be",
           folder);
    }
  }

  Task task() const override { return Task::kClassify; }
  size_t size() const override { return pictures_.size(); }
  int class_count() const override { return class_count_; }
  KnownPicture Load(size_t index, int channels) const override {
    const auto& [path, label] = pictures_[index];
    KnownPicture known;
    known.name = path;
    known.picture = ReadPicture(path, channels);
    known.label = label;
    return known;
  }

 private:
  static std::vector<int> ClassesOf(const std::vector<std::string>& names,
                                    const std::vector<std::string>& labels) {
    if (auto classes = ByLabels(names, labels)) return *std::move(classes);
    std::vector<int> numbers;
    std::vector<int> order;
    for (const std::string& name : names) {
      const auto number = ParseNumber<int>(name);
      if (number && *number >= 0 && *number < 1'000'000) numbers.push_back(*number);
      order.push_back(static_cast<int>(order.size()));
    }
    return numbers.size() == names.size() ? numbers : order;
  }

  std::vector<std::pair<std::string, int>> pictures_;
  int class_count_ = 0;
};

class Masks : public DataSet {
 public:
  explicit Masks(const std::string& folder) {
    const fs::path masks = fs::path(folder) / "masks";
    std::map<std::string, std::string> by_stem;
    for (const std::string& name : NamesIn(masks, false)) {
      by_stem[fs::path(name).stem().string()] = (masks / name).string();
    }
    const fs::path images = fs::path(folder) / "images";
    for (const std::string& name : NamesIn(images, false)) {
      const auto found = by_stem.find(fs::path(name).stem().string());
      if (found == by_stem.end()) {
        Fail(ExitCode::kUsage, "'{}' has no mask of that name in '{}'; add one, or take it away",
             (images / name).string(), masks.string());
      }
      pictures_.emplace_back((images / name).string(), found->second);
    }
    if (pictures_.empty()) Fail(ExitCode::kUsage, "there is no picture in '{}'", images.string());
  }

  Task task() const override { return Task::kSegment; }
  size_t size() const override { return pictures_.size(); }
  int class_count() const override { return 0; }
  KnownPicture Load(size_t index, int channels) const override {
    KnownPicture known;
    known.name = pictures_[index].first;
    known.picture = ReadPicture(known.name, channels);
    known.mask = ReadMask(pictures_[index].second);
    return known;
  }

 private:
  static atollrt::Image ReadMask(const std::string& path) {
    // The kind of pixels in a PNG's header: 3 is numbers in a palette.
    constexpr size_t kKindAt = 25;
    const std::string start =
        ReadBeginning(path, kKindAt + 1, [&](const char* verb, const auto& why) {
          Fail(ExitCode::kFailure, "cannot {} '{}': {}", verb, path, why);
        });
    const bool palette =
        start.size() > kKindAt && start.starts_with("\x89PNG") && start[kKindAt] == 3;
    if (!palette) return ReadPicture(path, 1);
    const atollrt::Image colors = ReadPicture(path, 3);
    std::map<std::array<uint8_t, 3>, uint8_t> classes;
    const auto known = atollrt::SegmentationPalette();
    for (size_t i = 0; i < known.size(); ++i) {
      classes[{known[i].r, known[i].g, known[i].b}] = static_cast<uint8_t>(i);
    }
    atollrt::Image mask;
    mask.Reshape(colors.width, colors.height, 1);
    for (size_t i = 0; i < mask.pixels.size(); ++i) {
      const uint8_t* const color = colors.pixels.data() + 3 * i;
      const auto found = classes.find({color[0], color[1], color[2]});
      if (found == classes.end()) {
        Fail(ExitCode::kUsage,
             "'{}' has the colour {},{},{}, which is not in the palette of Pascal VOC; store "
             "classes "
             "as gray pixels",
             path, color[0], color[1], color[2]);
      }
      mask.pixels[i] = found->second;
    }
    return mask;
  }

  std::vector<std::pair<std::string, std::string>> pictures_;
};

// ---- COCO ---------------------------------------------------------------------------------------

class Coco : public DataSet {
 public:
  Coco(const std::string& path, const std::string& pictures, const std::vector<std::string>& labels)
      : folder_(pictures.empty() ? fs::path(path).parent_path() : fs::path(pictures)) {
    try {
      Read(nlohmann::json::parse(ReadFile(path)), labels);
    } catch (const nlohmann::json::exception& error) {
      // Without the library's name for it, which comes first, in brackets.
      const std::string_view what = error.what();
      const size_t end = what.find("] ");
      Fail(ExitCode::kUsage, "'{}' is not as COCO has instances: {}; give its instances_*.json",
           path, end == what.npos ? what : what.substr(end + 2));
    }
    if (pictures_.empty()) Fail(ExitCode::kUsage, "'{}' names no pictures", path);
  }

  Task task() const override { return Task::kDetect; }
  size_t size() const override { return pictures_.size(); }
  int class_count() const override { return class_count_; }
  KnownPicture Load(size_t index, int channels) const override {
    const Entry& entry = pictures_[index];
    KnownPicture known;
    known.name = (folder_ / entry.file).string();
    known.picture = ReadPicture(known.name, channels);
    for (TrueBox box : entry.boxes) {
      box.left /= known.picture.width;
      box.right /= known.picture.width;
      box.top /= known.picture.height;
      box.bottom /= known.picture.height;
      known.boxes.push_back(box);
    }
    return known;
  }

 private:
  struct Entry {
    std::string file;
    std::vector<TrueBox> boxes;  // in pixels
  };

  // A number that is whole and fits.
  static int64_t Number(const nlohmann::json& object, const char* key) {
    const nlohmann::json& number = object.at(key);
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!number.is_number_integer() ||
        (number.is_number_unsigned() && number.get<uint64_t>() > kMost)) {
      Fail(ExitCode::kUsage, "a {} is a {}, must be a whole number below 2^63", key,
           number.type_name());
    }
    return number.get<int64_t>();
  }

  void Read(const nlohmann::json& json, const std::vector<std::string>& labels) {
    std::map<int64_t, std::string> categories;
    for (const auto& category : json.at("categories")) {
      categories[Number(category, "id")] = category.at("name").get<std::string>();
    }
    std::vector<std::string> names;
    for (const auto& [id, name] : categories) names.push_back(name);
    const auto by_labels = ByLabels(names, labels);
    std::map<int64_t, int> classes;
    size_t next = 0;
    for (const auto& [id, name] : categories) {
      const int64_t number =
          by_labels ? (*by_labels)[next++]
                    : static_cast<int64_t>(static_cast<uint64_t>(id) -
                                           static_cast<uint64_t>(categories.begin()->first));
      if (number < 0 || number >= 1'000'000)
        Fail(ExitCode::kUsage, "the category '{}' has number {}", name, id);
      classes[id] = static_cast<int>(number);
      class_count_ = std::max(class_count_, static_cast<int>(number) + 1);
    }
    std::map<int64_t, size_t> by_id;
    for (const auto& image : json.at("images")) {
      by_id[Number(image, "id")] = pictures_.size();
      pictures_.push_back({image.at("file_name").get<std::string>(), {}});
    }
    for (const auto& annotation : json.at("annotations")) {
      const auto image = by_id.find(Number(annotation, "image_id"));
      const auto category = classes.find(Number(annotation, "category_id"));
      if (image == by_id.end() || category == classes.end()) {
        Fail(ExitCode::kUsage,
             "an annotation is of image {} and category {}, which are not both there",
             Number(annotation, "image_id"), Number(annotation, "category_id"));
      }
      const nlohmann::json& corners = annotation.at("bbox");
      if (corners.size() != 4) {
        Fail(ExitCode::kUsage, "the box of image {} has {} numbers, must have 4",
             Number(annotation, "image_id"), corners.size());
      }
      const auto box = corners.get<std::array<double, 4>>();
      TrueBox truth{category->second, box[0], box[1], box[0] + box[2], box[1] + box[3]};
      if (!std::isfinite(truth.right) || !std::isfinite(truth.bottom) || box[2] < 0 || box[3] < 0) {
        Fail(ExitCode::kUsage, "the box [{}, {}, {}, {}] of image {} is none", box[0], box[1],
             box[2], box[3], Number(annotation, "image_id"));
      }
      truth.crowd = annotation.value("iscrowd", 0) != 0;
      pictures_[image->second].boxes.push_back(truth);
    }
  }

  const fs::path folder_;
  std::vector<Entry> pictures_;
  int class_count_ = 0;
};

}  // namespace

std::unique_ptr<DataSet> OpenDataSet(const std::string& path, const std::string& pictures,
                                     const std::vector<std::string>& labels) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    Fail(ExitCode::kFailure, "there is no '{}'; 'atoll evaluate --help' says what data may be",
         path);
  }
  if (!fs::is_directory(path, error)) return std::make_unique<Coco>(path, pictures, labels);
  const std::string images = IdxFile(path, "t10k-images-idx3-ubyte");
  const std::string classes = IdxFile(path, "t10k-labels-idx1-ubyte");
  if (!images.empty() && !classes.empty()) return std::make_unique<Idx>(images, classes);
  if (fs::is_directory(fs::path(path) / "masks", error)) return std::make_unique<Masks>(path);
  return std::make_unique<ClassFolders>(path, labels);
}

}  // namespace atollcmd
