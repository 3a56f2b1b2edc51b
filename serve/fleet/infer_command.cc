// SPDX-License-Identifier: Apache-2.0
//
// atoll fleet infer: frames, of which so many are under way at a time.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/printable.h"
#include "serve/fleet/commands.h"
#include "serve/fleet/frame_client.h"
#include "serve/fleet/job_files.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::Printable;
using atollrt::Result;
using atollrt::Status;
using Json = nlohmann::json;
using std::chrono::duration_cast;
using std::chrono::steady_clock;

// What became of frames: captured = processed + dropped + failed.
struct FrameTally {
  int64_t captured = 0;
  int64_t processed = 0;
  int64_t late = 0;     // dropped: nobody answered in time
  int64_t skipped = 0;  // dropped: as many as may be were under way
  int64_t failed = 0;
  std::vector<double> latencies_ms;  // of the processed ones
  std::map<std::string, int64_t> by_worker;
  std::string first_error;
  double seconds = 0;
};

// Asks about frames: input I of N is frame I, I + N, I + 2 N and so on.
class FrameRun {
 public:
  FrameRun(const InferCommand& command, const std::vector<JobInput>& inputs,
           const std::optional<OutputFolder>& folder, FrameClient* client)
      : command_(command), inputs_(inputs), folder_(folder), client_(client) {}

  // All of them; returns when the last one has ended.
  FrameTally Run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < command_.in_flight; ++i) threads.emplace_back([this] { AskAll(); });
    const size_t count = inputs_.size() * static_cast<size_t>(command_.repeat);
    const auto start = steady_clock::now();
    for (size_t frame = 0; frame < count; ++frame) {
      if (command_.fps > 0) {
        const std::chrono::duration<double> at(static_cast<double>(frame) / command_.fps);
        std::this_thread::sleep_until(start + duration_cast<steady_clock::duration>(at));
      }
      Capture(frame);
    }
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
    tally_.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    return std::move(tally_);
  }

 private:
  // With --fps a frame for which there is no place is dropped; without, it waits for one.
  void Capture(size_t frame) {
    std::unique_lock lock(mutex_);
    ++tally_.captured;
    const auto has_place = [&] { return running_ < command_.in_flight; };
    if (command_.fps > 0 && !has_place()) {
      ++tally_.skipped;
      return;
    }
    changed_.wait(lock, has_place);
    ++running_;
    queue_.push_back(frame);
    changed_.notify_all();
  }

  // Of each thread.
  void AskAll() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const size_t frame = queue_.back();
      queue_.pop_back();
      lock.unlock();
      const auto start = steady_clock::now();
      FrameAnswer answer = Ask(frame);
      const std::chrono::duration<double, std::milli> latency = steady_clock::now() - start;
      Store(frame, &answer);
      lock.lock();
      --running_;
      Count(answer, latency.count());
      changed_.notify_all();
    }
  }

  FrameAnswer Ask(size_t frame) const {
    const JobInput& input = inputs_[frame % inputs_.size()];
    FrameRequest request;
    request.model = command_.model;
    for (const auto& [name, value] : input.headers) {
      request.headers.emplace_back(name.c_str(), value);
    }
    request.body = input.body;
    request.budget = std::chrono::microseconds(static_cast<int64_t>(command_.budget_ms * 1000));
    request.number = std::to_string(frame);
    return client_->Infer(request);
  }

  // The answer to each input's first frame.
  void Store(size_t frame, FrameAnswer* answer) const {
    if (!folder_ || frame >= inputs_.size() || answer->end != FrameEnd::kAnswered) return;
    const Status written = folder_->Write(inputs_[frame].name, answer->body, answer->json_bytes);
    if (written.ok()) return;
    answer->end = FrameEnd::kFailed;
    answer->error = written.message();
  }

  void Count(const FrameAnswer& answer, double ms) {
    switch (answer.end) {
      case FrameEnd::kAnswered:
        ++tally_.processed;
        tally_.latencies_ms.push_back(ms);
        ++tally_.by_worker[answer.worker];
        return;
      case FrameEnd::kLate:
        ++tally_.late;
        break;
      case FrameEnd::kFailed:
        ++tally_.failed;
        break;
    }
    if (tally_.first_error.empty()) tally_.first_error = answer.error;
  }

  const InferCommand& command_;
  const std::vector<JobInput>& inputs_;
  const std::optional<OutputFolder>& folder_;
  FrameClient* const client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  FrameTally tally_;
  int running_ = 0;
  std::vector<size_t> queue_;  // at most one for each thread that waits
  bool is_over_ = false;
};

double Percentile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(part * last + 0.5)];
}

void PrintFrames(const InferCommand& command, FrameTally tally) {
  std::sort(tally.latencies_ms.begin(), tally.latencies_ms.end());
  const double p50 = Percentile(tally.latencies_ms, 0.5);
  const double p99 = Percentile(tally.latencies_ms, 0.99);
  if (command.json) {
    const Json report = {{"schema", 1},
                         {"command", "fleet infer"},
                         {"model", command.model},
                         {"captured", tally.captured},
                         {"processed", tally.processed},
                         {"dropped", tally.late + tally.skipped},
                         {"failed", tally.failed},
                         {"late", tally.late},
                         {"skipped", tally.skipped},
                         {"seconds", tally.seconds},
                         {"latency_p50_ms", p50},
                         {"latency_p99_ms", p99},
                         {"workers", tally.by_worker},
                         {"error", tally.first_error}};
    std::printf("%s\n", DumpJson(report).c_str());
    return;
  }
  std::printf("%lld captured = %lld processed + %lld dropped + %lld failed\n",
              static_cast<long long>(tally.captured), static_cast<long long>(tally.processed),
              static_cast<long long>(tally.late + tally.skipped),
              static_cast<long long>(tally.failed));
  if (!tally.latencies_ms.empty()) {
    std::printf("latency  p50 %.2f ms, p99 %.2f ms, %.1f frames/s\n", p50, p99,
                static_cast<double>(tally.processed) / tally.seconds);
  }
  for (const auto& [worker, frames] : tally.by_worker) {
    std::printf("%8lld by %s\n", static_cast<long long>(frames), Printable(worker).c_str());
  }
  if (!tally.first_error.empty()) {
    std::printf("first error: %s\n", Printable(tally.first_error).c_str());
  }
}

}  // namespace

int RunInfer(const InferCommand& command) {
  const auto files = ExpandFiles(command.files);
  if (!files.ok()) return Fail(files.status());
  std::vector<JobInput> inputs;
  for (const std::string& file : *files) {
    auto input = ReadJobFile(file);
    if (!input.ok()) return Fail(input.status());
    inputs.push_back(*std::move(input));
  }
  std::optional<OutputFolder> folder;
  if (!command.output.empty()) {
    folder.emplace(command.output);
    if (const Status status = folder->Check(*files); !status.ok()) return Fail(status);
  }
  const auto connection = Connect(command.connection, "atoll fleet infer", false);
  if (!connection.ok()) return Fail(connection.status());
  const auto client = FrameClient::Create(connection->get());
  if (!client.ok()) return Fail(client.status());
  FrameTally tally = FrameRun(command, inputs, folder, client->get()).Run();
  const bool went_well = tally.processed > 0 && tally.failed == 0;
  PrintFrames(command, std::move(tally));
  return went_well ? kOk : kFailure;
}

}  // namespace atollserve
