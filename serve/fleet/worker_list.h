// SPDX-License-Identifier: Apache-2.0
//
// WorkerList: which workers there are, and which models they have, by what they say of themselves
// every two seconds; who has said nothing for six is not on it. Everybody with the rights says what
// he wants, so that the list has a limit of workers and one of bytes: what is beyond them is not
// listed. Pure; not thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace atollserve {

class WorkerList {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr size_t kMaxWorkers = 10'000;

  // At most so many bytes are known of all of them.
  explicit WorkerList(size_t max_bytes = 64 << 20) : max_bytes_(max_bytes) {}

  // What worker `id` says (records.h); without anything sensible it has gone.
  void Hear(const std::string& id, std::string_view json, Time now);
  // Requests do not go to it until then.
  void LeaveAlone(const std::string& id, Time until);

  // Those that take requests to `model`.
  std::vector<std::string> With(std::string_view model, Time now) const;
  int Free(const std::string& id) const;  // places; 0 if it has gone
  size_t size() const { return workers_.size(); }

 private:
  struct Worker {
    int free = 0;
    bool draining = false;
    std::vector<std::string> models;
    size_t bytes = 0;
    Time heard;
    Time left_alone_until = {};
  };
  void Forget(const std::string& id);

  const size_t max_bytes_;
  std::map<std::string, Worker> workers_;
  size_t bytes_ = 0;  // of all workers
  Time swept_ = {};   // when the silent ones were forgotten
};

}  // namespace atollserve
