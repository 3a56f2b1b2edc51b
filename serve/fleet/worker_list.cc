// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/worker_list.h"

#include <algorithm>
#include <utility>

#include "serve/fleet/records.h"

namespace atollserve {
namespace {

constexpr auto kSilence = std::chrono::seconds(6);
constexpr auto kSweepEvery = std::chrono::seconds(1);

}  // namespace

void WorkerList::Hear(const std::string& id, std::string_view json, Time now) {
  auto record = ParseWorker(json);
  if (!record.ok() || record->worker != id) return Forget(id);
  if (now - swept_ >= kSweepEvery) {
    swept_ = now;
    std::erase_if(workers_, [&](const auto& one) {
      const bool is_silent = now - one.second.heard > kSilence;
      if (is_silent) bytes_ -= one.second.bytes;
      return is_silent;
    });
  }
  Worker worker = {.free = record->free, .draining = record->draining, .models = {}, .heard = now};
  worker.bytes = sizeof(Worker) + 2 * sizeof(std::string) + id.size();
  for (WorkerModel& model : record->models) {
    worker.bytes += sizeof(std::string) + model.name.size();
    worker.models.push_back(std::move(model.name));
  }
  const auto before = workers_.find(id);
  if (before != workers_.end()) worker.left_alone_until = before->second.left_alone_until;
  Forget(id);
  if (workers_.size() >= kMaxWorkers || worker.bytes > max_bytes_ - bytes_) return;
  bytes_ += worker.bytes;
  workers_.emplace(id, std::move(worker));
}

void WorkerList::Forget(const std::string& id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  bytes_ -= found->second.bytes;
  workers_.erase(found);
}

void WorkerList::LeaveAlone(const std::string& id, Time until) {
  const auto found = workers_.find(id);
  if (found != workers_.end()) found->second.left_alone_until = until;
}

std::vector<std::string> WorkerList::With(std::string_view model, Time now) const {
  std::vector<std::string> found;
  for (const auto& [id, worker] : workers_) {
    if (worker.draining || now - worker.heard > kSilence || now < worker.left_alone_until) continue;
    if (std::find(worker.models.begin(), worker.models.end(), model) == worker.models.end()) {
      continue;
    }
    found.push_back(id);
  }
  return found;
}

int WorkerList::Free(const std::string& id) const {
  const auto found = workers_.find(id);
  return found == workers_.end() ? 0 : found->second.free;
}

}  // namespace atollserve
