// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"
#include "compat/tflite_delegate/chooser.h"
#include "compat/tflite_delegate/device.h"
#include "compat/tflite_delegate/partition.h"

namespace atollcompat {

struct DelegateOptions {
  Operators operators = Operators::kAll;
  int min_nodes = 1;  // smaller partitions stay with the runtime
  int num_threads = 0;
  int verbosity = 0;  // 1: which operators are taken, on stderr; 2: and why others are not
  const char* kernel_name = "AtollDelegate";  // in messages of the runtime; lives for ever
  // What runtimes get as their external context of an Edge TPU; null: nothing.
  std::shared_ptr<TfLiteExternalContext> external_context;
};

// A TfLiteDelegate that runs partitions with Atoll, on any number of interpreters and threads. What
// a runtime gets is `shown`; it must outlive the interpreters, or at least be called by none of
// them any more: what their kernels need they keep.
class Delegate {
 public:
  Delegate(std::shared_ptr<Device> device, DelegateOptions options);

  // Fails with `error` in Prepare.
  static std::unique_ptr<Delegate> Broken(std::string error);

  TfLiteDelegate* shown() { return &shown_.delegate; }
  static Delegate* Of(TfLiteDelegate* delegate) { return static_cast<Delegate*>(delegate->data_); }
  const DelegateOptions& options() const { return options_; }
  const std::shared_ptr<Device>& device() const { return device_; }

  // What Prepare made for these nodes of an interpreter that is just being changed; without an
  // interpreter and an error if it made nothing.
  Partition TakePrepared(const TfLiteContext* context, const TfLiteDelegateParams& params);

  // A line on stderr.
  __attribute__((format(printf, 1, 2))) static void Print(const char* format, ...);

 private:
  static TfLiteStatus Prepare(TfLiteContext* context, TfLiteDelegate* delegate);
  TfLiteStatus TakeNodes(TfLiteContext* context);

  // Newer runtimes may read more of the struct than is known here: they find zeros.
  struct Shown {
    TfLiteDelegate delegate = {};
    void* spare[16] = {};
  };
  Shown shown_;
  DelegateOptions options_;
  std::shared_ptr<Device> device_;  // null if it is broken
  std::string error_;
  std::mutex mutex_;
  std::map<const TfLiteContext*, std::vector<ChosenPartition>> prepared_;  // while it is changed
};

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_
