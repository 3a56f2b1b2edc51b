// SPDX-License-Identifier: Apache-2.0
#include "serve/inference/model_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

namespace fs = std::filesystem;
using atollrt::InvalidArgument;
using atollrt::NotFound;
using atollrt::ResourceExhausted;
using atollrt::Result;
using atollrt::Status;

constexpr size_t kTextBytes = 1 << 20;  // of labels, and of a config
constexpr std::string_view kModelFile = "model.tflite";

// nullopt if there is none, or it is too large.
std::optional<std::string> ReadText(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const auto size = fs::file_size(path, error);
  if (error || size > kTextBytes) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) return std::nullopt;
  return text;
}

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

Status CheckConfig(const std::string& name, const std::string& text) {
  if (text.size() > kTextBytes) {
    return InvalidArgument("config of model '%s' has %zu bytes; at most %zu", name.c_str(),
                           text.size(), kTextBytes);
  }
  auto json = ParseJson(text);
  if (!json.ok()) {
    return std::move(json).status().WithContext("config of model '" + name + "'");
  }
  if (!json->is_object()) {
    return InvalidArgument("config of model '%s' is no object of JSON", name.c_str());
  }
  return {};
}

// What the config's version_policy leaves of `files`, which are in order.
Status ApplyPolicy(const std::string& name, const std::string& config, size_t most,
                   std::vector<ModelFile>* files) {
  size_t newest = 1;
  if (!config.empty()) {
    const auto json = ParseJson(config);
    const nlohmann::json* const policy = json.ok() ? FindMember(*json, "version_policy") : nullptr;
    const nlohmann::json* const latest =
        policy == nullptr ? nullptr : FindMember(*policy, "latest");
    const nlohmann::json* const specific =
        policy == nullptr ? nullptr : FindMember(*policy, "specific");
    if (policy != nullptr && FindMember(*policy, "all") != nullptr) {
      newest = files->size();
    } else if (latest != nullptr) {
      const nlohmann::json* const count = FindMember(*latest, "num_versions");
      if (count != nullptr && count->is_number_unsigned()) newest = count->get<size_t>();
    } else if (specific != nullptr) {
      const nlohmann::json* const versions = FindMember(*specific, "versions");
      std::set<int64_t> wanted;
      if (versions != nullptr && versions->is_array()) {
        for (const nlohmann::json& version : *versions) {
          if (version.is_number_integer()) wanted.insert(version.get<int64_t>());
        }
      }
      std::erase_if(*files, [&](const ModelFile& file) { return !wanted.contains(file.version); });
      newest = files->size();
      if (files->empty()) {
        return NotFound("model '%s' has none of the versions that its version_policy names",
                        name.c_str());
      }
    }
  }
  newest = std::max<size_t>(newest, 1);
  if (files->size() > newest) files->erase(files->begin(), files->end() - newest);
  if (files->size() > most) {
    return ResourceExhausted("model '%s' shall be served in %zu versions; at most %zu",
                             name.c_str(), files->size(), most);
  }
  return {};
}

}  // namespace

bool IsModelName(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) >= ' ' && c != '/' && c != '\\' && c != 0x7f;
         });
}

std::optional<std::pair<std::string, std::string>> ParseNamedFile(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == text.npos || equals == 0 || equals + 1 == text.size()) return std::nullopt;
  return std::pair(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

std::optional<int64_t> ParseVersion(std::string_view text) {
  int64_t version = 0;
  if (text.empty() || text.size() > 18 || text[0] == '0') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) return std::nullopt;
  return version;
}

Result<std::vector<std::string>> ListModels(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) {
    return NotFound("folder of models '%s': %s; give one with NAME/1/model.tflite", folder.c_str(),
                    error.message().c_str());
  }
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code none;  // what cannot be looked at is no model
    const std::string name = entries->path().filename().string();
    if (IsModelName(name) && entries->is_directory(none)) names.push_back(name);
  }
  if (error) {
    return NotFound("folder of models '%s': %s", folder.c_str(), error.message().c_str());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool HasFolder(const std::string& folder, const std::string& name) {
  std::error_code error;
  return !folder.empty() && IsModelName(name) && fs::is_directory(fs::path(folder) / name, error);
}

Result<ModelFiles> FindModel(const std::string& folder, const std::string& name, ModelUpload upload,
                             const InferenceLimits& limits) {
  if (!IsModelName(name)) return InvalidArgument("this is no name of a model");
  ModelFiles found;
  std::optional<std::string> labels;
  for (auto& [path, bytes] : upload.files) {
    if (bytes.size() > limits.model_bytes) {
      return ResourceExhausted("file '%s' of model '%s' has %zu bytes; at most %zu", path.c_str(),
                               name.c_str(), bytes.size(), limits.model_bytes);
    }
    const size_t slash = path.find('/');
    const auto version = ParseVersion(std::string_view(path).substr(0, slash));
    if (path == "labels.txt" && bytes.size() <= kTextBytes) {
      labels = std::move(bytes);
    } else if (version && slash != std::string::npos && path.substr(slash + 1) == kModelFile) {
      found.versions.push_back({.version = *version,
                                .path = "",
                                .bytes = std::make_shared<const std::string>(std::move(bytes))});
    } else {
      return InvalidArgument(
          "file '%s' of model '%s' is none that a model has: those are VERSION/model.tflite and "
          "labels.txt",
          path.c_str(), name.c_str());
    }
  }
  const fs::path at = fs::path(folder) / name;
  std::error_code error;
  const bool on_disk = HasFolder(folder, name);
  if (on_disk) {
    if (!labels) labels = ReadText(at / "labels.txt");
    if (!upload.config) upload.config = ReadText(at / "config.json");
  }
  if (found.versions.empty() && on_disk) {
    fs::directory_iterator entries(at, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      std::error_code none;  // what cannot be looked at is no version
      const auto version = ParseVersion(entries->path().filename().string());
      const fs::path file = entries->path() / kModelFile;
      if (version && fs::is_regular_file(file, none)) {
        found.versions.push_back({.version = *version, .path = file.string(), .bytes = nullptr});
      }
    }
    if (error) {
      return NotFound("model '%s': %s", name.c_str(), error.message().c_str());
    }
  }
  if (found.versions.empty()) {
    return NotFound("there is no model '%s': no %s in a folder with the number of a version",
                    name.c_str(), std::string(kModelFile).c_str());
  }
  std::sort(found.versions.begin(), found.versions.end(),
            [](const ModelFile& a, const ModelFile& b) { return a.version < b.version; });
  if (upload.config) {
    ATOLL_RETURN_IF_ERROR(CheckConfig(name, *upload.config));
    found.config = std::move(*upload.config);
  }
  ATOLL_RETURN_IF_ERROR(ApplyPolicy(name, found.config, limits.versions, &found.versions));
  if (labels) found.labels = SplitLines(*labels);
  return found;
}

Result<ModelFiles> SingleModel(const std::string& name, const std::string& path) {
  if (!IsModelName(name)) {
    return InvalidArgument("'%s' is no name of a model", name.c_str());
  }
  ModelFiles found;
  found.versions.push_back({.version = 1, .path = path, .bytes = nullptr});
  const fs::path folder = fs::path(path).parent_path();
  std::optional<std::string> labels = ReadText(folder / (name + ".txt"));
  if (!labels) labels = ReadText(folder / "labels.txt");
  if (labels) found.labels = SplitLines(*labels);
  return found;
}

}  // namespace atollserve
