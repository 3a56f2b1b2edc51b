// SPDX-License-Identifier: Apache-2.0
//
// Where models come from: a folder laid out as Triton's, NAME/VERSION/model.tflite with
// NAME/labels.txt and NAME/config.json beside the versions, a single file, or what a client
// uploads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

struct ModelFile {
  int64_t version = 1;
  std::string path;                          // "": it was uploaded
  std::shared_ptr<const std::string> bytes;  // of an uploaded one
};

struct ModelFiles {
  std::vector<ModelFile> versions;  // those that shall be served, ascending
  std::vector<std::string> labels;
  std::string config;  // JSON, an object; ""
};

// 1 to 200 bytes without '/', '\\' and control characters, UTF-8 or not, that do not begin with a
// dot.
bool IsModelName(std::string_view name);
// "NAME=FILE", cut at the first '='. nullopt if either part is empty.
std::optional<std::pair<std::string, std::string>> ParseNamedFile(std::string_view text);
// 1 to 18 digits, the first of them not 0. nullopt if it is none.
std::optional<int64_t> ParseVersion(std::string_view text);

// Names of all models in `folder`, in order. kNotFound if it cannot be read.
atollrt::Result<std::vector<std::string>> ListModels(const std::string& folder);
// Whether `folder` ("": there is none) has one of that name.
bool HasFolder(const std::string& folder, const std::string& name);

// The files of `name` in `folder` ("": there is none), with those of `upload` in their place: a
// model of which one is uploaded has the uploaded versions alone. The newest version is taken, or
// what the config's version_policy says. kNotFound, kInvalidArgument, kResourceExhausted (too
// large, too many).
atollrt::Result<ModelFiles> FindModel(const std::string& folder, const std::string& name,
                                      ModelUpload upload, const InferenceLimits& limits);
// The files of a model that is one; labels are NAME.txt or labels.txt beside it.
atollrt::Result<ModelFiles> SingleModel(const std::string& name, const std::string& path);

}  // namespace atollserve
