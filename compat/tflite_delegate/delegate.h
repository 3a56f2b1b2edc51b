// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "compat/tflite/abi.h"
#include "compat/tflite_delegate/model_writer.h"

namespace atollcompat {

// Which of a graph's operators the delegate takes.
enum class Operators : uint8_t {
  kAll,     // all that Atoll computes, on the device or on the CPU
  kDevice,  // those that the device has instructions for
};

struct DelegateOptions {
  std::string device = "auto";  // docs/devices.md
  std::string performance;      // of a Coral; "": Atoll's default
  std::string on_device_loss;   // "": Atoll's default
  Operators operators = Operators::kAll;
  int min_nodes = 1;  // smaller partitions stay with the runtime
  int num_threads = 0;
  int verbosity = 0;  // 1: which operators are taken, on stderr; 2: and why others are not
};

// A TfLiteDelegate that runs partitions with Atoll, on any number of interpreters and threads. What
// a runtime gets is `shown`; it must outlive the interpreters.
class Delegate {
 public:
  // Opens the device. Never null: if it could not be opened, `error` says why, and interpreters
  // that the delegate is given to fail with it.
  static std::unique_ptr<Delegate> Create(const DelegateOptions& options);
  ~Delegate();

  // Fails with `error` in Prepare.
  static std::unique_ptr<Delegate> Broken(std::string error);

  TfLiteDelegate* shown() { return &shown_.delegate; }
  static Delegate* Of(TfLiteDelegate* delegate) { return static_cast<Delegate*>(delegate->data_); }
  const std::string& error() const { return error_; }
  const DelegateOptions& options() const { return options_; }
  AtollDelegate* device() const { return device_; }

  // The model of these bytes, which interpreters with the same partition share.
  std::shared_ptr<AtollModel> ModelOf(const std::string& bytes, std::string* error);

  // A line on stderr.
  __attribute__((format(printf, 1, 2))) static void Print(const char* format, ...);

 private:
  Delegate();
  static TfLiteStatus Prepare(TfLiteContext* context, TfLiteDelegate* delegate);
  TfLiteStatus TakeNodes(TfLiteContext* context);
  bool Takes(TfLiteContext* context, int node);

  // Newer runtimes may read more of the struct than is known here: they find zeros.
  struct Shown {
    TfLiteDelegate delegate = {};
    void* spare[16] = {};
  };
  Shown shown_;
  DelegateOptions options_;
  std::string error_;
  AtollDelegate* device_ = nullptr;
  std::mutex mutex_;
  std::map<size_t, std::vector<std::pair<std::string, std::weak_ptr<AtollModel>>>> models_;
};

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_
