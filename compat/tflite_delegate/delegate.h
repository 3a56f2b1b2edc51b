// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_

#include <memory>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"
#include "compat/tflite_delegate/device.h"

namespace atollcompat {

// Which of a graph's operators the delegate takes. Those that Google's compiler made
// ("edgetpu-custom-op") always: nobody else has a kernel for them, so what is wrong with one can be
// said by the delegate alone.
enum class Operators : uint8_t {
  kAll,       // all that Atoll computes, on the device or on the CPU
  kDevice,    // those that the device has instructions for
  kCompiled,  // no others
};

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

  // A line on stderr.
  __attribute__((format(printf, 1, 2))) static void Print(const char* format, ...);

 private:
  static TfLiteStatus Prepare(TfLiteContext* context, TfLiteDelegate* delegate);
  TfLiteStatus TakeNodes(TfLiteContext* context);
  // "" if Atoll computes the node, else why not.
  std::string WhyNot(TfLiteContext* context, const TfLiteNode& node,
                     const TfLiteRegistration& registration);

  // Newer runtimes may read more of the struct than is known here: they find zeros.
  struct Shown {
    TfLiteDelegate delegate = {};
    void* spare[16] = {};
  };
  Shown shown_;
  DelegateOptions options_;
  std::shared_ptr<Device> device_;  // null if it is broken
  std::string error_;
};

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_DELEGATE_H_
