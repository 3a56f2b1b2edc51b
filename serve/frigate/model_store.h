// SPDX-License-Identifier: Apache-2.0
//
// Models that clients have sent, in a folder: each file once, under the digest of its bytes, and an
// index of the names that clients have for them, in the order of their latest use. Names never
// become names of files. With limits: what was not used for longest goes first.
//
// One thread at a time, and one store for a folder, which a lock on it makes sure of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/file_descriptor.h"

namespace atollrt {

struct ModelStoreLimits {
  size_t models = 16;                  // names
  uint64_t bytes = uint64_t{1} << 30;  // of all files together
  size_t bytes_per_model = size_t{256} << 20;
};

struct StoredModel {
  std::string name;
  std::string sha256;
  uint64_t bytes = 0;
};

class ModelStore {
 public:
  // Makes the folder, for this user alone, if it is not there. kDeviceBusy if another store has it.
  // An index that cannot be read is an
  // error: kCorruptModel, with its path; files that it does not name are left
  // alone.
  static Result<ModelStore> Open(std::string folder, const ModelStoreLimits& limits);

  // Latest use first.
  const std::vector<StoredModel>& models() const { return models_; }

  // The model of this name, which becomes the latest in use; nullopt: there is none, or its file
  // has gone or has other bytes than it had, and it is forgotten.
  std::optional<StoredModel> Find(const std::string& name);
  std::string PathOf(const StoredModel& model) const;

  // Writes a file and its name; the name's former file goes when no other name has it.
  // kInvalidArgument for an empty one, kResourceExhausted above bytes_per_model, and what the file
  // system says, with the path.
  Result<StoredModel> Save(const std::string& name, std::span<const uint8_t> bytes);
  Status Forget(const std::string& name);

 private:
  ModelStore(std::string folder, const ModelStoreLimits& limits)
      : folder_(std::move(folder)), limits_(limits) {}
  Status ReadIndex();
  Status WriteIndex() const;
  // Removes its name, and its file unless another name has it.
  void Remove(size_t index);

  std::string folder_;
  FileDescriptor lock_;  // the folder, while it is ours
  ModelStoreLimits limits_;
  std::vector<StoredModel> models_;
};

}  // namespace atollrt
