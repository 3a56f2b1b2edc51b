// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/job_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "serve/fleet/infer_call.h"
#include "serve/fleet/subjects.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

namespace fs = std::filesystem;
using atollrt::InvalidArgument;
using atollrt::NotFound;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = 64 << 20;

Status WriteError(const std::string& path) {
  const int number = errno;
  return Status(number == ENOSPC ? StatusCode::kResourceExhausted : StatusCode::kNotFound,
                "'" + path + "' cannot be written: " + std::strerror(number));
}

const char* PictureType(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (extension == ".jpg" || extension == ".jpeg") return "image/jpeg";
  if (extension == ".png") return "image/png";
  if (extension == ".bmp") return "image/bmp";
  if (extension == ".ppm" || extension == ".pgm") return "image/x-portable-anymap";
  return nullptr;
}

}  // namespace

Result<std::vector<std::string>> ExpandFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (!fs::exists(path, error)) return NotFound("there is no file '%s'", path.c_str());
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    fs::directory_iterator entries(path, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      std::error_code none;  // what cannot be looked at is no file
      if (entries->is_regular_file(none)) inside.push_back(entries->path().string());
    }
    if (error) return NotFound("folder '%s': %s", path.c_str(), error.message().c_str());
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  if (files.empty()) return InvalidArgument("there are no files; give some, or a folder of them");
  std::vector<std::string> sorted = files;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return InvalidArgument("file '%s' is there twice", twice->c_str());
  return files;
}

Result<std::string> ReadWholeFile(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return NotFound("file '%s' cannot be read", path.c_str());
  const auto size = static_cast<int64_t>(file.tellg());
  if (size < 0 || static_cast<uint64_t>(size) > most) {
    return InvalidArgument("file '%s' has %lld bytes; at most %zu", path.c_str(),
                           static_cast<long long>(size), most);
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) return NotFound("file '%s' cannot be read", path.c_str());
  return bytes;
}

Result<JobInput> ReadJobFile(const std::string& path) {
  JobInput input;
  input.name = path;
  ATOLL_ASSIGN_OR_RETURN(input.body, ReadWholeFile(path, kMaxFileBytes));
  if (const char* const type = PictureType(path)) {
    input.headers[kTypeHeader] = type;
  } else {
    input.headers[kLengthHeader] = "0";
  }
  return input;
}

Status OutputFolder::Check(const std::vector<std::string>& files) const {
  std::set<std::string> names;
  for (const std::string& file : files) {
    const std::string name = fs::path(file).filename().string();
    if (!names.insert(name).second) {
      return InvalidArgument(
          "two files are called '%s', of whose results '%s' holds one; give FILE.jsonl as output",
          name.c_str(), path_.c_str());
    }
  }
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) return NotFound("folder '%s': %s", path_.c_str(), error.message().c_str());
  return {};
}

Status OutputFolder::Write(const std::string& file, std::string_view body,
                           std::string_view json_bytes) const {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<OutputTensor> outputs, ParseAnswer(body, json_bytes));
  const std::string name = fs::path(file).filename().string();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path =
        (fs::path(path_) / (name + ".out_" + std::to_string(i) + ".raw")).string();
    std::ofstream stream(path, std::ios::binary);
    stream.write(outputs[i].bytes.data(), static_cast<std::streamsize>(outputs[i].bytes.size()));
    stream.close();
    if (!stream) return WriteError(path);
  }
  return {};
}

Result<std::unique_ptr<JobOutput>> JobOutput::Open(const std::string& path,
                                                   const std::vector<std::string>& files) {
  std::unique_ptr<JobOutput> output(new JobOutput);
  output->path_ = path;
  if (!path.ends_with(".jsonl")) {
    output->folder_ = std::make_unique<OutputFolder>(path);
    ATOLL_RETURN_IF_ERROR(output->folder_->Check(files));
    output->path_ = (fs::path(path) / "results.jsonl").string();
  }
  output->file_ = atollrt::FileDescriptor(
      open(output->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0644));
  if (output->file_.get() < 0) return WriteError(output->path_);
  ATOLL_RETURN_IF_ERROR(output->Read());
  return output;
}

Status JobOutput::Read() {
  std::ifstream file(path_, std::ios::binary);
  uint64_t end = 0;
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // without its line end
    end += line.size() + 1;
    const auto json = ParseJson(line);
    if (!json.ok()) continue;
    const Json* const name = FindMember(*json, "file");
    const Json* const job = FindMember(*json, "job");
    if (name != nullptr && name->is_string()) names_.insert(name->get<std::string>());
    if (job != nullptr && job->is_string()) jobs_.insert(job->get<std::string>());
  }
  if (ftruncate(file_.get(), static_cast<off_t>(end)) != 0) return WriteError(path_);
  return {};
}

Status JobOutput::Write(const JobResult& result) {
  if (jobs_.contains(result.job.job)) return {};
  Json line = {{"file", result.job.name},
               {"job", result.job.job},
               {"ok", result.error.empty()},
               {"worker", result.worker}};
  if (!result.error.empty()) {
    line["error"] = result.error;
    line["code"] = result.code;
  } else {
    auto outputs = ParseAnswer(result.body, result.json_bytes);
    if (!outputs.ok()) {
      line["ok"] = false;
      line["error"] = outputs.status().message();
      line["code"] = 500;
    } else {
      Json list = Json::array();
      for (const OutputTensor& output : *outputs) {
        Json one = {{"name", output.name},
                    {"datatype", DataTypeName(output.type)},
                    {"shape", output.shape}};
        if (folder_ == nullptr) one["data"] = Base64Url(output.bytes);
        list.push_back(std::move(one));
      }
      line["outputs"] = std::move(list);
      if (folder_ != nullptr) {
        ATOLL_RETURN_IF_ERROR(folder_->Write(result.job.name, result.body, result.json_bytes));
      }
    }
  }
  const std::string text = DumpJson(line) + "\n";
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(file_.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return WriteError(path_);
    written += static_cast<size_t>(count);
  }
  jobs_.insert(result.job.job);
  return {};
}

Status JobOutput::Sync() {
  if (fdatasync(file_.get()) != 0) return WriteError(path_);
  return {};
}

}  // namespace atollserve
