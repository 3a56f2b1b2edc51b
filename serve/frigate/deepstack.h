// SPDX-License-Identifier: Apache-2.0
//
// What clients of DeepStack, CodeProject.AI and DOODS ask for, as functions from requests to
// answers, all of JSON (docs/frigate.md): Frigate's `type: deepstack`, Blue Iris, Agent DVR, Home
// Assistant.
//
//   POST /v1/vision/detection         a form with a file `image`: predictions in its pixels
//   POST /v1/vision/custom/NAME       the same by the model of that name
//   POST /v1/vision/custom/list       names
//   GET  /v1/status/ping
//   POST /detect, GET /detectors      DOODS: JSON with the picture in base64; fractions
//
// Frigate looks at predictions one after the other until one is below 0.4, or of a class that it
// does not know, and has room for 20: so they are sorted, the best first, 20 at most, and have
// names in small letters.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "serve/frigate/detector.h"

namespace atollrt {

// Names of classes by index: one in each line, or all lines numbered, "17 cat" or "17: cat".
std::vector<std::string> ParseClassNames(std::string_view text);

struct NamedDetector {
  std::string name;  // in paths: letters, digits, '.', '_' and '-'
  std::shared_ptr<ObjectDetector> detector;
  std::vector<std::string> labels;  // by class; those that are missing are called "class 17"
};

struct DeepstackOptions {
  std::vector<NamedDetector> models;  // the first one is for /v1/vision/detection
  // What clients must send as `api_key`; "": nothing.
  std::string api_key;
  std::chrono::milliseconds budget{10'000};  // for a place at the detector
};

struct VisionRequest {
  std::string_view method;
  std::string_view path;  // without query, as it was sent
  std::string_view content_type;
  std::string_view body;
  bool authorized = false;  // it has shown a credential already, and needs no `api_key`
};

struct VisionAnswer {
  int status = 200;
  std::string body;  // application/json
};

class DeepstackService {
 public:
  // A body may have so many bytes.
  static constexpr size_t kMaxBodyBytes = size_t{32} << 20;

  // kInvalidArgument without models, and for names that do not fit or are there twice.
  static Result<DeepstackService> Create(DeepstackOptions options);

  // Whether a path is one of these; others have answer 404.
  static bool Serves(std::string_view path);

  // Thread-safe; takes as long as decoding and the inference. Never fails: what is wrong is said in
  // the answer, in the form that the path's clients know.
  VisionAnswer Answer(const VisionRequest& request) const;

 private:
  explicit DeepstackService(DeepstackOptions options) : options_(std::move(options)) {}
  VisionAnswer DetectForm(const NamedDetector& model, const VisionRequest& request) const;
  VisionAnswer DetectDoods(const VisionRequest& posted) const;
  VisionAnswer ListDetectors() const;
  VisionAnswer ListModels() const;

  DeepstackOptions options_;
};

}  // namespace atollrt
