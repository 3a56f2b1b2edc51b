// SPDX-License-Identifier: Apache-2.0
//
// Progress: says on stderr, every few seconds, that long work goes on and how far it is. Work that
// ends within two seconds says nothing. The environment variable ATOLL_PROGRESS is "off", or the
// seconds between lines.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace atollcmd {

class Progress {
 public:
  // `what` is being done, "measuring"; in `total` steps called `unit`, if that is known. Of those
  // that exist at a time the first one speaks. Ends with its last line gone from a terminal.
  explicit Progress(std::string what, int64_t total = 0, std::string unit = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // One more step is done. Cheap: another thread does the talking.
  void Step() { done_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void Speak();
  std::string Line(double seconds) const;

  const std::string what_;
  const int64_t total_;
  const std::string unit_;
  std::atomic<int64_t> done_{0};
  bool speaks_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace atollcmd
