// SPDX-License-Identifier: Apache-2.0
#include "models/zoo/zoo.h"

#include <charconv>
#include <cstdlib>

#include "models/zoo/networks.h"

namespace atollrt {
namespace {

// What follows the name of a family.
enum class Suffix { kSize, kWidthAndSize };

struct Family {
  const char* name;
  Suffix suffix;
  void (*build)(NetworkBuilder* b, const ZooParameters& p);
  std::vector<const char*> usual;  // suffixes
};

const std::vector<Family>& Families() {
  static const auto* families = new std::vector<Family>{
      {"deeplab_v3_mobilenet_v2",
       Suffix::kWidthAndSize,
       DeepLabV3MobileNetV2,
       {"0.5_513", "1.0_513"}},
      {"densenet121", Suffix::kSize, DenseNet121, {"224"}},
      {"efficientnet_edgetpu_l", Suffix::kSize, EfficientNetEdgeTpuL, {"300"}},
      {"efficientnet_edgetpu_m", Suffix::kSize, EfficientNetEdgeTpuM, {"240"}},
      {"efficientnet_edgetpu_s", Suffix::kSize, EfficientNetEdgeTpuS, {"224"}},
      {"inception_resnet_v2", Suffix::kSize, InceptionResNetV2, {"299"}},
      {"inception_v1", Suffix::kSize, InceptionV1, {"224"}},
      {"inception_v3", Suffix::kSize, InceptionV3, {"299"}},
      {"inception_v4", Suffix::kSize, InceptionV4, {"299"}},
      {"mobilenet_v1",
       Suffix::kWidthAndSize,
       MobileNetV1,
       {"0.25_128", "0.5_160", "0.75_192", "1.0_224"}},
      {"mobilenet_v2", Suffix::kWidthAndSize, MobileNetV2, {"1.0_224"}},
      {"posenet_mobilenet_v1",
       Suffix::kWidthAndSize,
       PoseNetMobileNetV1,
       {"0.75_353x481", "0.75_481x641", "0.75_721x1281"}},
      {"resnet_v1_101", Suffix::kSize, ResNetV1_101, {"224"}},
      {"resnet_v1_152", Suffix::kSize, ResNetV1_152, {"224"}},
      {"resnet_v1_50", Suffix::kSize, ResNetV1_50, {"224", "299"}},
      {"resnet_v2_101", Suffix::kSize, ResNetV2_101, {"224"}},
      {"resnet_v2_152", Suffix::kSize, ResNetV2_152, {"224"}},
      {"resnet_v2_50", Suffix::kSize, ResNetV2_50, {"224", "299"}},
      {"squeezenet_v1.0", Suffix::kSize, SqueezeNetV1_0, {"224"}},
      {"squeezenet_v1.1", Suffix::kSize, SqueezeNetV1_1, {"224"}},
      {"ssd_mobilenet_v1", Suffix::kWidthAndSize, SsdMobileNetV1, {"0.75_300", "1.0_300"}},
      {"ssd_mobilenet_v2", Suffix::kWidthAndSize, SsdMobileNetV2, {"1.0_300"}},
      {"ssdlite_mobiledet", Suffix::kSize, SsdliteMobileDet, {"320"}},
      {"unet_mobilenet_v2", Suffix::kWidthAndSize, UNetMobileNetV2, {"1.0_128", "1.0_256"}},
      {"vgg16", Suffix::kSize, Vgg16, {"224"}},
      {"vgg19", Suffix::kSize, Vgg19, {"224"}},
  };
  return *families;
}

std::string Pattern(const Family& family) {
  return std::string(family.name) +
         (family.suffix == Suffix::kSize ? "_<size>" : "_<width>_<size>");
}

// "224" or "353x481"; false if it is neither.
bool ReadSize(std::string_view text, ZooParameters* p) {
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, p->height);
  if (error != std::errc()) return false;
  p->columns = p->height;
  if (at == end) return true;
  if (*at != 'x') return false;
  const auto [last, second] = std::from_chars(at + 1, end, p->columns);
  return second == std::errc() && last == end;
}

bool ReadSuffix(std::string_view text, Suffix suffix, ZooParameters* p) {
  if (suffix == Suffix::kWidthAndSize) {
    const size_t underscore = text.find('_');
    if (underscore == std::string_view::npos) return false;
    const std::string_view width = text.substr(0, underscore);
    const auto [last, error] = std::from_chars(width.data(), width.data() + width.size(), p->width);
    if (error != std::errc() || last != width.data() + width.size()) return false;
    text.remove_prefix(underscore + 1);
  }
  return ReadSize(text, p);
}

}  // namespace

std::vector<std::string> ZooFamilies() {
  std::vector<std::string> names;
  for (const Family& family : Families()) names.push_back(Pattern(family));
  return names;
}

std::vector<std::string> ZooNetworks() {
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    for (const char* suffix : family.usual) {
      names.push_back(std::string(family.name) + "_" + suffix);
    }
  }
  return names;
}

Result<ZooModel> BuildZooModel(std::string_view name, const ZooOptions& options) {
  constexpr double kMaxWidth = 4;
  constexpr int32_t kMinSize = 16, kMaxSize = 4096;
  const std::string text(name);
  for (const Family& family : Families()) {
    const std::string prefix = std::string(family.name) + "_";
    ZooParameters p;
    if (text.compare(0, prefix.size(), prefix) != 0 ||
        !ReadSuffix(std::string_view(text).substr(prefix.size()), family.suffix, &p)) {
      continue;
    }
    if (!(p.width > 0 && p.width <= kMaxWidth)) {
      return InvalidArgument("%s: width %g, must be over 0 and at most %g", text.c_str(), p.width,
                             kMaxWidth);
    }
    for (const int32_t size : {p.height, p.columns}) {
      if (size < kMinSize || size > kMaxSize) {
        return InvalidArgument("%s: size %d, must be %d to %d", text.c_str(), size, kMinSize,
                               kMaxSize);
      }
    }
    NetworkBuilder builder(text, options);
    family.build(&builder, p);
    return std::move(builder).Finish();
  }
  std::string known;
  for (const std::string& pattern : ZooFamilies()) known += (known.empty() ? "" : ", ") + pattern;
  return NotFound("no network '%s' in the zoo; there are: %s", text.c_str(), known.c_str());
}

}  // namespace atollrt
