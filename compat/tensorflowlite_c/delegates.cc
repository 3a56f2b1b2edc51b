// SPDX-License-Identifier: Apache-2.0
#include "compat/tensorflowlite_c/delegates.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "compat/tflite/handshake.h"

namespace atollcompat {
namespace {

TfLiteStatus EmptyPlan(TfLiteContext* /*context*/, TfLiteIntArray** plan) {
  static TfLiteIntArray empty = {.size = 0};
  *plan = &empty;
  return kTfLiteOk;
}

TfLiteStatus ReplaceNothing(TfLiteContext* /*context*/, TfLiteRegistration /*registration*/,
                            const TfLiteIntArray* /*nodes*/, TfLiteDelegate* /*delegate*/) {
  return kTfLiteOk;
}

TfLiteStatus NoPartitions(TfLiteContext* /*context*/, const TfLiteIntArray* /*nodes*/,
                          TfLiteDelegateParams** partitions, int* count) {
  *partitions = nullptr;
  *count = 0;
  return kTfLiteOk;
}

TfLiteStatus NoNode(TfLiteContext* /*context*/, int /*index*/, TfLiteNode** /*node*/,
                    TfLiteRegistration** /*registration*/) {
  return kTfLiteError;
}

TfLiteStatus NoTensors(TfLiteContext* /*context*/, int /*count*/, int* /*first*/) {
  return kTfLiteError;
}

TfLiteStatus NoResize(TfLiteContext* /*context*/, TfLiteTensor* /*tensor*/, TfLiteIntArray* dims) {
  TfLiteIntArrayFree(dims);  // its owner is who is called
  return kTfLiteError;
}

void Ignore(TfLiteContext* /*context*/, const char* /*format*/, ...) {}

TfLiteExternalContext* NoExternalContext(TfLiteContext* /*context*/, int /*type*/) {
  return nullptr;
}

void IgnoreExternalContext(TfLiteContext* /*context*/, int /*type*/,
                           TfLiteExternalContext* /*external*/) {}

// What is behind `delegate`; all zeros if it is not one of ours.
Handshake ShakeHands(TfLiteDelegate* delegate) {
  Handshake handshake = {};
  if (delegate->Prepare == nullptr) return handshake;
  std::memcpy(handshake.magic, Handshake::kMagic, sizeof(handshake.magic));
  TfLiteContext context = {.GetExecutionPlan = EmptyPlan,
                           .impl_ = &handshake,
                           .ResizeTensor = NoResize,
                           .ReportError = Ignore,
                           .AddTensors = NoTensors,
                           .GetNodeAndRegistration = NoNode,
                           .ReplaceNodeSubsetsWithDelegateKernels = ReplaceNothing,
                           .recommended_num_threads = 1,
                           .GetExternalContext = NoExternalContext,
                           .SetExternalContext = IgnoreExternalContext,
                           .PreviewDelegatePartitioning = NoPartitions};
  delegate->Prepare(&context, delegate);
  return handshake;
}

// The device that ATOLL_DEVICE names. As long as one interpreter uses it, all share it: a real one
// can be opened once.
Device DeviceOfProcess(const char* name, std::string* error) {
  static std::mutex mutex;
  static std::weak_ptr<AtollDelegate> open;
  static std::string open_name;
  const std::lock_guard lock(mutex);
  Device device = {.of_process = open.lock()};
  if (device.of_process == nullptr || open_name != name) {
    AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
    options.device = name;
    AtollDelegate* created = nullptr;
    if (AtollDelegateCreate(&options, &created) != ATOLL_OK) {
      *error = AtollLastError();
      return {};
    }
    device.of_process = {created, AtollDelegateDelete};
    open = device.of_process;
    open_name = name;
  }
  device.delegate = device.of_process.get();
  device.ok = true;
  return device;
}

}  // namespace

Device ChooseDevice(const std::vector<TfLiteDelegate*>& delegates, const Reporter& reporter) {
  for (TfLiteDelegate* const delegate : delegates) {
    const Handshake handshake = ShakeHands(delegate);
    if (handshake.delegate != nullptr) return {.ok = true, .delegate = handshake.delegate};
    if (handshake.error != nullptr) {
      reporter.Say("%s", handshake.error);
      return {};
    }
    if (handshake.does_nothing != 0) continue;
    Warn(
        "a delegate that is not Atoll's is left out: Atoll's libtensorflowlite_c runs models with "
        "its own kernels; ATOLL_DEVICE=auto, or Atoll's delegate, takes a coprocessor");
  }
  const char* const name = std::getenv("ATOLL_DEVICE");
  if (name == nullptr || *name == '\0') return {.ok = true};
  std::string error;
  Device device = DeviceOfProcess(name, &error);
  // Not before: the program's function may make an interpreter, too.
  if (!device.ok) reporter.Say("ATOLL_DEVICE: %s", error.c_str());
  return device;
}

}  // namespace atollcompat

namespace {

using atollcompat::Handshake;
using atollcompat::Warn;

// A delegate of a library that was loaded for it. What the library made stays behind this one.
struct ExternalDelegate {
  TfLiteDelegate shown = {};  // first: this is what programs have
  void* library = nullptr;
  void (*destroy)(TfLiteDelegate* delegate) = nullptr;
  TfLiteDelegate* made = nullptr;
};

ExternalDelegate* Of(TfLiteDelegate* delegate) {
  return static_cast<ExternalDelegate*>(delegate->data_);
}

void PrintPluginError(const char* message) { Warn("%s", message); }

TfLiteStatus NothingToPrepare(TfLiteContext* context, TfLiteDelegate* /*delegate*/) {
  if (Handshake* const handshake = atollcompat::FindHandshake(context); handshake != nullptr) {
    handshake->does_nothing = 1;
  }
  return kTfLiteOk;
}

}  // namespace

extern "C" {

TfLiteDelegateOf29 TfLiteDelegateCreate(void) { return {}; }

TfLiteExternalDelegateOptions TfLiteExternalDelegateOptionsDefault(const char* lib_path) {
  TfLiteExternalDelegateOptions options = {};
  options.lib_path = lib_path;
  options.insert = TfLiteExternalDelegateOptionsInsert;
  return options;
}

TfLiteStatus TfLiteExternalDelegateOptionsInsert(TfLiteExternalDelegateOptions* options,
                                                 const char* key, const char* value) {
  if (options->count >= kTfLiteExternalDelegateMaxOptions) return kTfLiteError;
  options->keys[options->count] = key;
  options->values[options->count] = value;
  ++options->count;
  return kTfLiteOk;
}

TfLiteDelegate* TfLiteExternalDelegateCreate(const TfLiteExternalDelegateOptions* options) {
  auto external = std::make_unique<ExternalDelegate>();
  external->library = dlopen(options->lib_path, RTLD_NOW | RTLD_LOCAL);
  if (external->library == nullptr) {
    Warn("%s", dlerror());
    return nullptr;
  }
  using Create =
      TfLiteDelegate*(const char* const*, const char* const*, size_t, void (*)(const char*));
  auto* const create =
      reinterpret_cast<Create*>(dlsym(external->library, "tflite_plugin_create_delegate"));
  external->destroy = reinterpret_cast<void (*)(TfLiteDelegate*)>(
      dlsym(external->library, "tflite_plugin_destroy_delegate"));
  if (create == nullptr || external->destroy == nullptr) {
    Warn(
        "%s is no delegate: it lacks tflite_plugin_create_delegate or "
        "tflite_plugin_destroy_delegate",
        options->lib_path);
  } else {
    const int count = std::clamp<int>(options->count, 0, kTfLiteExternalDelegateMaxOptions);
    external->made =
        create(options->keys, options->values, static_cast<size_t>(count), PrintPluginError);
  }
  if (external->made == nullptr) {
    dlclose(external->library);
    return nullptr;
  }
  // Buffers are the made one's; of the rest it sees what it made itself.
  external->shown.data_ = external.get();
  external->shown.flags = external->made->flags;
  external->shown.Prepare = [](TfLiteContext* context, TfLiteDelegate* delegate) {
    TfLiteDelegate* const made = Of(delegate)->made;
    return made->Prepare != nullptr ? made->Prepare(context, made) : kTfLiteError;
  };
  return &external.release()->shown;
}

void TfLiteExternalDelegateDelete(TfLiteDelegate* delegate) {
  if (delegate == nullptr) return;
  const std::unique_ptr<ExternalDelegate> external(Of(delegate));
  external->destroy(external->made);
  dlclose(external->library);
}

TfLiteXNNPackDelegateOptions TfLiteXNNPackDelegateOptionsDefault(void) { return {}; }

TfLiteDelegate* TfLiteXNNPackDelegateCreate(const TfLiteXNNPackDelegateOptions* /*options*/) {
  auto* const delegate = new TfLiteDelegate{};
  delegate->Prepare = NothingToPrepare;
  return delegate;
}

void* TfLiteXNNPackDelegateGetThreadPool(TfLiteDelegate* /*delegate*/) { return nullptr; }

void TfLiteXNNPackDelegateDelete(TfLiteDelegate* delegate) { delete delegate; }

}  // extern "C"
