// SPDX-License-Identifier: Apache-2.0
//
// Models of clients that are in memory.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "serve/frigate/detector.h"
#include "serve/frigate/model_store.h"

namespace atollrt {

// By the names that clients have for them, the latest in use first. Thread-safe.
class LoadedModels {
 public:
  static constexpr size_t kMost = 4;  // the one that nobody used for longest goes

  // nullptr if it is not there.
  std::shared_ptr<ObjectDetector> Find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (auto model = models_.begin(); model != models_.end(); ++model) {
      if (model->name != name) continue;
      models_.splice(models_.begin(), models_, model);
      return model->detector;
    }
    return nullptr;
  }
  // The same bytes under another name, too, are the same model.
  std::shared_ptr<ObjectDetector> FindBytes(const std::string& sha256) {
    const std::lock_guard lock(mutex_);
    for (const Entry& model : models_) {
      if (model.sha256 == sha256) return model.detector;
    }
    return nullptr;
  }
  void Insert(const StoredModel& stored, std::shared_ptr<ObjectDetector> detector) {
    const std::lock_guard lock(mutex_);
    models_.remove_if([&](const Entry& model) { return model.name == stored.name; });
    models_.push_front({stored.name, stored.sha256, std::move(detector)});
    if (models_.size() > kMost) models_.pop_back();
  }

 private:
  struct Entry {
    std::string name;
    std::string sha256;
    std::shared_ptr<ObjectDetector> detector;
  };
  std::mutex mutex_;
  std::list<Entry> models_;
};

}  // namespace atollrt
