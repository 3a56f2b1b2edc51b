// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/deepstack.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "serve/frigate/multipart.h"

namespace atollrt {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr size_t kMaxPredictions = 20;
constexpr float kDefaultConfidence = 0.4f;
constexpr int64_t kMaxPixels = int64_t{1} << 25;
constexpr std::string_view kDetection = "/v1/vision/detection";
constexpr std::string_view kCustom = "/v1/vision/custom/";
constexpr std::string_view kPing = "/v1/status/ping";
constexpr std::string_view kDoodsDetect = "/detect";
constexpr std::string_view kDoodsDetectors = "/detectors";

std::string_view WithoutLastSlash(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

VisionAnswer JsonAnswer(const json& body, int status = 200) {
  return {status, body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return 400;
    case StatusCode::kResourceExhausted:
      return 413;
    case StatusCode::kTimeout:
      return 503;
    default:
      return 500;
  }
}

VisionAnswer Refusal(int status, const std::string& sentence) {
  return JsonAnswer({{"success", false}, {"error", sentence}, {"code", status}}, status);
}

std::string Lowered(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

std::string LabelOf(const NamedDetector& model, int class_index) {
  const auto at = static_cast<size_t>(class_index);
  if (at < model.labels.size() && !model.labels[at].empty()) return Lowered(model.labels[at]);
  return Format("class %d", class_index);
}

// The decimal number that the float is written as, rather than what it is to the last bit.
double Written(float value) {
  char text[32] = {};
  std::to_chars(text, text + sizeof(text) - 1, value);
  return std::strtod(text, nullptr);
}

bool IsModelPathName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// Takes as long whatever the first byte is that differs.
bool SameSecret(std::string_view given, std::string_view secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < secret.size(); ++i) {
    const char c = given.empty() ? '\0' : given[i % given.size()];
    difference = static_cast<unsigned char>(difference | (c ^ secret[i]));
  }
  return difference == 0;
}

// 0.4 without one; nullopt: it is no number of 0 to 1.
std::optional<float> ParseConfidence(const FormPart* part) {
  if (part == nullptr || part->value.empty()) return kDefaultConfidence;
  float value = 0;
  const char* const end = part->value.data() + part->value.size();
  const auto [number_end, error] = std::from_chars(part->value.data(), end, value);
  if (error != std::errc() || number_end != end || !(value >= 0 && value <= 1)) return std::nullopt;
  return value;
}

// Brought to the size of the model's input as `atoll detect` does it, with the same bytes.
struct Picture {
  int width = 0;  // as it was posted
  int height = 0;
  Image input;
};
Result<Picture> Decode(std::string_view bytes, const ObjectDetector& detector) {
  DecodeOptions options;
  options.channels = detector.channels();
  options.max_pixels = kMaxPixels;
  ATOLL_ASSIGN_OR_RETURN(
      const Image image,
      DecodeImage({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, options));
  ATOLL_ASSIGN_OR_RETURN(Image input, Resize(image, detector.width(), detector.height()));
  return Picture{image.width, image.height, std::move(input)};
}

// What JSON takes in memory is many times its text: only as much structure as DOODS needs.
bool IsModestJson(std::string_view text) {
  constexpr int kMaxDepth = 16;
  constexpr int kMaxMarks = 10'000;
  int depth = 0;
  int marks = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ',' || c == '[' || c == '{') ++marks;
    if (depth > kMaxDepth || marks > kMaxMarks) return false;
  }
  return true;
}

int64_t Milliseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

std::vector<std::string> ParseClassNames(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < 65536) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(newline + 1, text.size()));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::vector<std::string> numbered;
  for (const std::string& line : lines) {
    size_t number = 0;
    const char* const end = line.data() + line.size();
    const auto [after, error] = std::from_chars(line.data(), end, number);
    const size_t name = line.find_first_not_of(": \t", static_cast<size_t>(after - line.data()));
    if (error != std::errc() || number >= 65536 || name == line.npos ||
        line.data() + name == after) {
      return lines;
    }
    if (numbered.size() <= number) numbered.resize(number + 1);
    numbered[number] = line.substr(name);
  }
  return numbered;
}

Result<DeepstackService> DeepstackService::Create(DeepstackOptions options) {
  if (options.models.empty()) return InvalidArgument("there is no model to detect with");
  std::vector<std::string> names;
  for (const NamedDetector& model : options.models) {
    if (!IsModelPathName(model.name) || model.name == "list") {
      return InvalidArgument(
          "a model cannot be called '%s' in addresses: letters, digits, '.', '_' and '-' are left, "
          "and 'list' is taken",
          model.name.c_str());
    }
    if (std::find(names.begin(), names.end(), model.name) != names.end()) {
      return InvalidArgument("two models are called '%s'; rename one", model.name.c_str());
    }
    names.push_back(model.name);
  }
  return DeepstackService(std::move(options));
}

bool DeepstackService::Serves(std::string_view path) {
  path = WithoutLastSlash(path);
  return path == kDetection || path.starts_with(kCustom) || path == kPing || path == kDoodsDetect ||
         path == kDoodsDetectors;
}

VisionAnswer DeepstackService::Answer(const VisionRequest& request) const {
  const std::string_view path = WithoutLastSlash(request.path);
  const bool posts = request.method == "POST";
  const bool gets = request.method == "GET" || request.method == "HEAD";
  if (path == kPing && (gets || posts)) return JsonAnswer({{"success", true}});
  if (path == kDoodsDetectors && gets) return ListDetectors();
  if (path == "/v1/vision/custom/list" && (gets || posts)) return ListModels();
  if (!Serves(path)) return Refusal(404, "there is nothing at this path");
  if (!posts || path == kPing || path == kDoodsDetectors) {
    return Refusal(405, "this path does not take this method");
  }
  if (request.body.size() > kMaxBodyBytes) {
    return Refusal(413, Format("a request of %zu bytes is more than the %zu that are taken",
                               request.body.size(), kMaxBodyBytes));
  }
  if (path == kDoodsDetect) return DetectDoods(request);
  if (path == kDetection) return DetectForm(options_.models[0], request);
  const std::string_view name = path.substr(kCustom.size());
  for (const NamedDetector& model : options_.models) {
    if (model.name == name) return DetectForm(model, request);
  }
  return Refusal(404, "there is no model of this name; /v1/vision/custom/list has them");
}

VisionAnswer DeepstackService::DetectForm(const NamedDetector& model,
                                          const VisionRequest& request) const {
  const Clock::time_point start = Clock::now();
  const Result<std::vector<FormPart>> form = ParseForm(request.content_type, request.body);
  if (!form.ok()) return Refusal(400, form.status().message());
  if (!options_.api_key.empty() && !request.authorized) {
    const FormPart* key = FindPart(*form, "api_key");
    if (key == nullptr || !SameSecret(key->value, options_.api_key)) {
      return Refusal(401, "the form's api_key is not the one of this server");
    }
  }
  const std::optional<float> confidence = ParseConfidence(FindPart(*form, "min_confidence"));
  if (!confidence) return Refusal(400, "the form's min_confidence is no number of 0 to 1");
  const FormPart* image = FindPart(*form, "image");
  if (image == nullptr) image = FindPart(*form, "image1");
  if (image == nullptr) return Refusal(400, "the form has no file 'image'");
  const Result<Picture> picture = Decode(image->value, *model.detector);
  if (!picture.ok()) {
    return Refusal(HttpStatusOf(picture.status()), "image: " + picture.status().message());
  }
  const Clock::time_point inference_start = Clock::now();
  const auto found =
      model.detector->Detect((*picture).input, std::max(*confidence, ObjectDetector::kAnyScore),
                             inference_start + options_.budget);
  if (!found.ok()) return Refusal(HttpStatusOf(found.status()), found.status().message());
  const Clock::time_point end = Clock::now();

  json predictions = json::array();
  for (const Detection& one : *found) {
    if (predictions.size() == kMaxPredictions) break;
    const auto pixels = [](float fraction, int size) {
      return static_cast<int>(std::lround(fraction * static_cast<float>(size)));
    };
    predictions.push_back({{"label", LabelOf(model, one.class_index)},
                           {"confidence", Written(one.score)},
                           {"x_min", pixels(one.left, (*picture).width)},
                           {"y_min", pixels(one.top, (*picture).height)},
                           {"x_max", pixels(one.right, (*picture).width)},
                           {"y_max", pixels(one.bottom, (*picture).height)}});
  }
  const size_t count = predictions.size();
  return JsonAnswer({{"success", true},
                     {"predictions", std::move(predictions)},
                     {"count", count},
                     {"inferenceMs", Milliseconds(end - inference_start)},
                     {"processMs", Milliseconds(end - start)},
                     {"duration", 0},
                     {"code", 200}});
}

VisionAnswer DeepstackService::ListModels() const {
  json models = json::array();
  for (const NamedDetector& model : options_.models) models.push_back(model.name);
  return JsonAnswer({{"success", true}, {"models", std::move(models)}, {"code", 200}});
}

VisionAnswer DeepstackService::ListDetectors() const {
  json detectors = json::array();
  for (const NamedDetector& model : options_.models) {
    json labels = json::array();
    for (size_t i = 0; i < model.labels.size(); ++i) {
      labels.push_back(LabelOf(model, static_cast<int>(i)));
    }
    detectors.push_back({{"name", model.name},
                         {"type", "tflite"},
                         {"model", model.name},
                         {"labels", std::move(labels)},
                         {"width", model.detector->width()},
                         {"height", model.detector->height()},
                         {"channels", model.detector->channels()}});
  }
  return JsonAnswer({{"detectors", std::move(detectors)}});
}

VisionAnswer DeepstackService::DetectDoods(const VisionRequest& posted) const {
  std::string id;
  const auto refuse = [&](int status, const std::string& sentence) {
    return JsonAnswer({{"id", id}, {"error", sentence}}, status);
  };
  const json request = IsModestJson(posted.body)
                           ? json::parse(posted.body, /*cb=*/nullptr, /*allow_exceptions=*/false)
                           : json();
  if (!request.is_object()) {
    return refuse(400, "the request is no JSON object, or has too many lists and members");
  }
  const auto text = [&](const char* key) {
    const auto member = request.find(key);
    return member != request.end() && member->is_string() ? member->get<std::string>()
                                                          : std::string();
  };
  id = text("id");
  if (!options_.api_key.empty() && !posted.authorized &&
      !SameSecret(text("api_key"), options_.api_key)) {
    return refuse(401, "this server needs an \"api_key\"");
  }
  const std::string name = text("detector_name");
  const NamedDetector* model = name.empty() || name == "default" ? &options_.models[0] : nullptr;
  for (const NamedDetector& one : options_.models) {
    if (one.name == name) model = &one;
  }
  if (model == nullptr) return refuse(404, "there is no such \"detector_name\"; see /detectors");
  const auto regions = request.find("regions");
  if (regions != request.end() && !regions->is_null() && !regions->empty()) {
    return refuse(400, "\"regions\" are not looked at by this server; leave them out");
  }
  // Percentages by label, "*" for all others.
  const auto detect = request.find("detect");
  const bool has_detect = detect != request.end() && detect->is_object();
  const auto least = [&](const std::string& label) -> std::optional<float> {
    if (!has_detect) return kDefaultConfidence;
    auto member = detect->find(label);
    if (member == detect->end()) member = detect->find("*");
    if (member == detect->end() || !member->is_number()) return std::nullopt;
    return static_cast<float>(std::clamp(member->get<double>(), 0.0, 1000.0) / 100);
  };
  const std::string data = text("data");
  if (data.empty()) return refuse(400, "the request has no \"data\", a picture in base64");
  const Result<std::vector<uint8_t>> bytes = DecodeBase64(data);
  if (!bytes.ok()) return refuse(400, "data: " + bytes.status().message());
  const Result<Picture> picture =
      Decode({reinterpret_cast<const char*>((*bytes).data()), (*bytes).size()}, *model->detector);
  if (!picture.ok()) {
    return refuse(HttpStatusOf(picture.status()), "data: " + picture.status().message());
  }
  const auto found = model->detector->Detect((*picture).input, ObjectDetector::kAnyScore,
                                             Clock::now() + options_.budget);
  if (!found.ok()) return refuse(HttpStatusOf(found.status()), found.status().message());
  json detections = json::array();
  for (const Detection& one : *found) {
    const std::string label = LabelOf(*model, one.class_index);
    const std::optional<float> threshold = least(label);
    if (!threshold || !(one.score >= *threshold)) continue;
    detections.push_back({{"top", Written(one.top)},
                          {"left", Written(one.left)},
                          {"bottom", Written(one.bottom)},
                          {"right", Written(one.right)},
                          {"label", label},
                          {"confidence", Written(100 * one.score)}});
  }
  return JsonAnswer({{"id", id}, {"detections", std::move(detections)}});
}

}  // namespace atollrt
