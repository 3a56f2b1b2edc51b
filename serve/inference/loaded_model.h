// SPDX-License-Identifier: Apache-2.0
//
// LoadedModel: one version of a model that is served: its interpreters, with a thread each, and the
// requests that wait for them. It ends by being retired: it takes no requests any more, and its
// threads end with those that it has.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/atoll.hpp"
#include "atoll/status.h"
#include "serve/inference/inference_server.h"
#include "serve/inference/model_files.h"

namespace atollserve {

struct LoadedModelOptions {
  std::string name;
  int32_t threads = 0;
  int32_t instances = 1;
  InferenceLimits limits;
};

class LoadedModel : public std::enable_shared_from_this<LoadedModel> {
 public:
  // Errors of the file, with the model's name.
  static atollrt::Result<std::shared_ptr<LoadedModel>> Create(const LoadedModelOptions& options,
                                                              const ModelFile& file,
                                                              const ModelFiles& files,
                                                              const atollpp::Delegate& device);
  // Retired, and joined.
  ~LoadedModel();

  int64_t version() const { return version_; }
  // All that are served together with it. Before anybody else knows it.
  void SetVersions(const std::vector<std::string>& versions) {
    info_.versions = versions;
    shared_info_ = std::make_shared<const ModelInfo>(info_);
  }
  const std::shared_ptr<const ModelInfo>& info() const { return shared_info_; }

  // False if it is retired, and then nothing was done. Otherwise the request was taken or refused,
  // and `cancel` is set.
  bool Submit(InferRequest* request, InferCallback* done, CancelFunction* cancel);

  void Retire();
  // All that wait, with kCancelled.
  void CancelAll();
  // Until it has nothing to do; false if that took longer.
  bool WaitIdle(MonotonicTime until);
  // Waits for its threads, after Retire.
  void Join();

  ModelStatistics statistics() const;
  void AddActive(std::vector<ActiveRequest>* active) const;

 private:
  struct Job {
    InferRequest request;
    InferCallback done;
    MonotonicTime came;
    MonotonicTime wait_until;         // it does not wait longer than that
    std::vector<size_t> input_order;  // of the model's inputs: which of the request's
    std::vector<size_t> outputs;      // of the model's
  };
  // By priority, then by the order in which they came.
  using Key = std::pair<uint32_t, uint64_t>;
  struct Instance {
    explicit Instance(atollpp::Interpreter made) : interpreter(std::move(made)) {}
    atollpp::Interpreter interpreter;
    std::thread thread;
    // Of the job that it runs:
    bool busy = false;
    Key key;
    std::shared_ptr<Job> job;
    bool cancelled = false;
    bool expired = false;
  };
  // How a request ended, for the statistics.
  enum class End { kSuccess, kFailed, kRefused, kExpired, kCancelled };

  LoadedModel() = default;
  void Describe(const ModelFiles& files);
  // Whether it asks for what the model has; sets its order.
  atollrt::Status Check(Job* job) const;
  atollrt::Status CheckInput(const TensorInfo& info, const InputTensor& input,
                             bool real_values) const;
  void Work(Instance* instance);
  void Keep();
  InferOutcome Run(Instance* instance, Job* job);
  void Cancel(Key key);
  void Fail(Job* job, atollrt::Status status);
  void Count(End end, const InferOutcome* outcome, MonotonicTime came);
  int64_t ExpectedWaitNs(size_t ahead) const;

  int64_t version_ = 0;
  ModelInfo info_;
  std::shared_ptr<const ModelInfo> shared_info_;  // the same, for others
  InferenceLimits limits_;
  bool has_state_ = false;

  mutable std::mutex mutex_;
  std::condition_variable work_, keep_, idle_;
  std::map<Key, std::shared_ptr<Job>> queue_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::thread keeper_;  // ends requests whose time is over
  MonotonicTime keeper_wakes_ = MonotonicTime::max();
  uint64_t last_number_ = 0;
  bool retired_ = false;
  bool joined_ = false;
  int64_t average_ns_ = 0;  // of the last requests, on an interpreter
  ModelStatistics statistics_;
};

}  // namespace atollserve
