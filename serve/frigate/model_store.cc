// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/model_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/sha256.h"
#include "serve/frigate/exchange.h"

namespace atollrt {
namespace {

using nlohmann::json;

constexpr size_t kMaxIndexBytes = size_t{1} << 20;

Status FileError(const char* verb, const std::string& path) {
  return Status(
      errno == EACCES || errno == EPERM ? StatusCode::kPermissionDenied : StatusCode::kInternal,
      Format("cannot %s '%s': %s; check the folder of models", verb, path.c_str(),
             std::strerror(errno)));
}

// All of a file of at most `limit` bytes.
Result<std::vector<uint8_t>> ReadFile(const std::string& path, uint64_t limit) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) {
    if (errno == ENOENT) return Status(StatusCode::kNotFound, "there is no '" + path + "'");
    return FileError("read", path);
  }
  struct stat information = {};
  if (fstat(file.get(), &information) != 0) return FileError("read", path);
  if (!S_ISREG(information.st_mode) || static_cast<uint64_t>(information.st_size) > limit) {
    return Status(StatusCode::kCorruptModel,
                  Format("'%s' is no file of at most %llu bytes; remove it", path.c_str(),
                         static_cast<unsigned long long>(limit)));
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(information.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", path);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

// Either all of it or nothing: written beside, and renamed.
Status WriteFile(const std::string& path, std::span<const uint8_t> bytes) {
  const std::string beside = path + ".part";
  {
    const FileDescriptor file(
        open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.get() < 0) return FileError("write", beside);
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = write(file.get(), bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const Status status = FileError("write", beside);
        unlink(beside.c_str());
        return status;
      }
      done += static_cast<size_t>(count);
    }
    if (fsync(file.get()) != 0) return FileError("write", beside);
  }
  if (rename(beside.c_str(), path.c_str()) != 0) return FileError("write", path);
  return Status();
}

bool IsDigest(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

Result<ModelStore> ModelStore::Open(std::string folder, const ModelStoreLimits& limits) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return FileError("make", folder);
  ModelStore store(std::move(folder), limits);
  store.lock_ = FileDescriptor(open(store.folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (store.lock_.get() < 0) return FileError("open", store.folder_);
  if (flock(store.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kDeviceBusy, "another program has its models in '" + store.folder_ +
                                               "'; give each a folder of its own");
  }
  ATOLL_RETURN_IF_ERROR(store.ReadIndex());
  return store;
}

std::string ModelStore::PathOf(const StoredModel& model) const {
  return folder_ + "/" + model.sha256 + ".tflite";
}

Status ModelStore::ReadIndex() {
  const std::string path = folder_ + "/index.json";
  Result<std::vector<uint8_t>> bytes = ReadFile(path, kMaxIndexBytes);
  if (bytes.code() == StatusCode::kNotFound) return Status();
  if (!bytes.ok()) return std::move(bytes).status();
  const json index = json::parse(*bytes, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto damaged = [&] {
    return Status(StatusCode::kCorruptModel,
                  "'" + path + "' is no index of models; remove it, and clients send theirs again");
  };
  if (!index.is_array() || index.size() > 10'000) return damaged();
  for (const json& entry : index) {
    if (!entry.is_object()) return damaged();
    const auto name = entry.find("name");
    const auto sha256 = entry.find("sha256");
    const auto size = entry.find("bytes");
    if (name == entry.end() || !name->is_string() || sha256 == entry.end() ||
        !sha256->is_string() || size == entry.end() || !size->is_number_unsigned()) {
      return damaged();
    }
    StoredModel model{name->get<std::string>(), sha256->get<std::string>(), size->get<uint64_t>()};
    if (!IsModelName(model.name) || !IsDigest(model.sha256)) return damaged();
    models_.push_back(std::move(model));
  }
  return Status();
}

Status ModelStore::WriteIndex() const {
  json index = json::array();
  for (const StoredModel& model : models_) {
    index.push_back({{"name", model.name}, {"sha256", model.sha256}, {"bytes", model.bytes}});
  }
  const std::string text = index.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  return WriteFile(folder_ + "/index.json",
                   {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void ModelStore::Remove(size_t index) {
  const StoredModel removed = models_[index];
  models_.erase(models_.begin() + static_cast<ptrdiff_t>(index));
  const bool needed = std::any_of(models_.begin(), models_.end(), [&](const StoredModel& model) {
    return model.sha256 == removed.sha256;
  });
  if (!needed) unlink(PathOf(removed).c_str());  // whoever has it open keeps it
}

std::optional<StoredModel> ModelStore::Find(const std::string& name) {
  const auto found = std::find_if(models_.begin(), models_.end(),
                                  [&](const StoredModel& model) { return model.name == name; });
  if (found == models_.end()) return std::nullopt;
  const StoredModel model = *found;
  const Result<std::vector<uint8_t>> bytes = ReadFile(PathOf(model), limits_.bytes_per_model);
  if (!bytes.ok() || Sha256Hex((*bytes).data(), (*bytes).size()) != model.sha256) {
    (void)Forget(name).ok();  // what could not be written is found out again
    return std::nullopt;
  }
  std::rotate(models_.begin(), found, found + 1);
  (void)WriteIndex().ok();  // only the order
  return model;
}

Result<StoredModel> ModelStore::Save(const std::string& name, std::span<const uint8_t> bytes) {
  if (!IsModelName(name)) return InvalidArgument("a model cannot be stored under this name");
  if (bytes.empty()) return InvalidArgument("model '%s' has no bytes", name.c_str());
  if (bytes.size() > limits_.bytes_per_model || bytes.size() > limits_.bytes) {
    return Status(StatusCode::kResourceExhausted,
                  Format("model '%s' has %zu bytes, more than the %zu that one may have",
                         name.c_str(), bytes.size(), limits_.bytes_per_model));
  }
  StoredModel model{name, Sha256Hex(bytes.data(), bytes.size()), bytes.size()};
  ATOLL_RETURN_IF_ERROR(WriteFile(PathOf(model), bytes));
  models_.insert(models_.begin(), model);
  for (size_t i = models_.size(); i-- > 1;) {
    if (models_[i].name == name) Remove(i);
  }
  const auto total = [&] {
    uint64_t sum = 0;
    for (const StoredModel& one : models_) sum += one.bytes;
    return sum;
  };
  while (models_.size() > 1 && (models_.size() > limits_.models || total() > limits_.bytes)) {
    Remove(models_.size() - 1);
  }
  ATOLL_RETURN_IF_ERROR(WriteIndex());
  return model;
}

Status ModelStore::Forget(const std::string& name) {
  for (size_t i = models_.size(); i-- > 0;) {
    if (models_[i].name == name) Remove(i);
  }
  return WriteIndex();
}

}  // namespace atollrt
