// SPDX-License-Identifier: Apache-2.0
//
// What the external delegate costs per invocation over AtollInterpreterInvoke on the same model:
// under a made-up runtime, one thread, both in turns, the shortest of each. And what it takes to
// make an interpreter with it. Models are the bundled one, or those of the arguments.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "tests/compat/plugin.h"
#include "tests/support/made_up_tflite.h"
#include "tests/support/model_builder.h"

namespace {

using atollrt::MadeUpTflite;
using atollrt::Plugin;

// One of libatoll's, of the copy that the delegate has: another one would differ in where it lies.
#define ATOLL(Name) Plugin::Get().Function<decltype(Name)>(#Name)

double Microseconds(const std::function<void()>& function) {
  const auto before = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before)
      .count();
}

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s: %s\n", what, ATOLL(AtollLastError)());
  std::exit(1);
}

void Shorten(double* shortest, const std::function<void()>& function) {
  *shortest = std::min(*shortest, Microseconds(function));
}

// Each input elsewhere while it lives, as of a program that passes its own buffers.
class MovedInputs {
 public:
  explicit MovedInputs(MadeUpTflite* runtime) : runtime_(runtime) {
    for (const int32_t input : runtime_->graph().inputs) {
      TfLiteTensor& tensor = runtime_->tensor(input);
      places_.push_back(tensor.data.data);
      tensor.data.data = std::aligned_alloc(64, (tensor.bytes + 63) / 64 * 64);
      std::copy_n(static_cast<char*>(places_.back()), tensor.bytes, tensor.data.raw);
    }
  }
  ~MovedInputs() {
    for (size_t i = 0; i < places_.size(); ++i) {
      TfLiteTensor& tensor = runtime_->tensor(runtime_->graph().inputs[i]);
      std::free(tensor.data.data);
      tensor.data.data = places_[i];
    }
  }
  MovedInputs(const MovedInputs&) = delete;
  MovedInputs& operator=(const MovedInputs&) = delete;

 private:
  MadeUpTflite* const runtime_;
  std::vector<void*> places_;
};

// A model on a device, "emu" or "cpu", with and without a runtime in between.
class Comparison {
 public:
  Comparison(const char* name, const std::vector<uint8_t>& file, const char* device)
      : name_(name),
        file_(file),
        device_(device),
        delegate_(Plugin::Get().Make({{"device", device}, {"num_threads", "1"}})) {
    AtollDelegateOptions device_options = ATOLL_DELEGATE_OPTIONS_INIT;
    device_options.device = device;
    device_options.num_threads = 1;
    Check(ATOLL(AtollDelegateCreate)(&device_options, &direct_device_) == ATOLL_OK, device);
    options_.num_threads = 1;
    options_.delegate = direct_device_;
    auto model = atollrt::Model::FromBuffer(file);
    Check(model.ok(), name);
    model_ = *std::move(model);
  }
  ~Comparison() { ATOLL(AtollDelegateDelete)(direct_device_); }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  void Print() {
    const auto [creation, taking] = MeasureCreation();
    MadeUpTflite runtime(model_, layout_, 1);
    Check(
        runtime.ModifyGraph(delegate_.get()) == kTfLiteOk && runtime.AllocateTensors() == kTfLiteOk,
        runtime.errors().c_str());
    const auto [direct, delegated, moving] = MeasureInvoke(&runtime);
    std::printf(
        "%s on %s, %zu of %zu operators in %zu partitions\n"
        "  invoke: direct %.2f us, delegate %.2f us: %+.2f us (%.3f); inputs moved %+.2f us\n"
        "  create: direct %.2f ms, delegate %.2f ms (%.2f)\n",
        name_, device_, runtime.claimed(), runtime.graph().nodes.size(),
        runtime.partitions().size(), direct, delegated, delegated - direct, delegated / direct,
        moving - direct, creation / 1e3, taking / 1e3, taking / creation);
  }

 private:
  void CreateDirect(AtollModel** model, AtollInterpreter** interpreter) const {
    Check(ATOLL(AtollModelCreateFromBuffer)(file_.data(), file_.size(), model) == ATOLL_OK, name_);
    Check(ATOLL(AtollInterpreterCreate)(*model, &options_, interpreter) == ATOLL_OK, name_);
  }

  struct CreationTimes {
    double direct_us = 1e9, delegate_us = 1e9;
  };
  CreationTimes MeasureCreation() const {
    CreationTimes times;
    for (int turn = 0; turn < 5; ++turn) {
      AtollModel* model = nullptr;
      AtollInterpreter* created = nullptr;
      Shorten(&times.direct_us, [&] { CreateDirect(&model, &created); });
      ATOLL(AtollInterpreterDelete)(created);
      ATOLL(AtollModelDelete)(model);
      MadeUpTflite runtime(model_, layout_, 1);
      runtime.shakes = false;
      Shorten(&times.delegate_us, [&] {
        Check(runtime.ModifyGraph(delegate_.get()) == kTfLiteOk, runtime.errors().c_str());
      });
    }
    return times;
  }

  struct InvokeTimes {
    double direct_us = 1e9, delegate_us = 1e9, moving_us = 1e9;
  };
  InvokeTimes MeasureInvoke(MadeUpTflite* runtime) const {
    AtollModel* model = nullptr;
    AtollInterpreter* direct = nullptr;
    CreateDirect(&model, &direct);
    for (size_t i = 0; i < runtime->input_count(); ++i) {
      const std::span<uint8_t> bytes = runtime->Input(i);
      atollrt::FillFromSeed(1, runtime->graph().tensors[runtime->graph().inputs[i]].type, bytes);
      AtollTensor* const input =
          ATOLL(AtollInterpreterGetInputTensor)(direct, static_cast<int32_t>(i));
      ATOLL(AtollTensorCopyFromBuffer)(input, bytes.data(), bytes.size());
    }
    auto* const invoke = ATOLL(AtollInterpreterInvoke);
    const auto delegated = [&] {
      Check(runtime->Invoke() == kTfLiteOk, runtime->errors().c_str());
    };
    InvokeTimes times;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    for (int turn = 0; turn < 20000 && std::chrono::steady_clock::now() < end; ++turn) {
      Shorten(&times.direct_us, [&] { Check(invoke(direct) == ATOLL_OK, name_); });
      Shorten(&times.delegate_us, delegated);
      if (turn % 2 == 0) continue;  // what follows binds the inputs anew, and so does the next
      const MovedInputs moved(runtime);
      Shorten(&times.moving_us, delegated);
    }
    ATOLL(AtollInterpreterDelete)(direct);
    ATOLL(AtollModelDelete)(model);
    return times;
  }

  const char* const name_;
  const std::vector<uint8_t>& file_;
  const char* const device_;
  const atollrt::TfliteLayout& layout_ = atollrt::TfliteLayouts().back();
  std::shared_ptr<const atollrt::Model> model_;
  AtollDelegate* direct_device_ = nullptr;
  AtollInterpreterOptions options_ = ATOLL_INTERPRETER_OPTIONS_INIT;
  Plugin::DelegatePtr delegate_;
};

std::vector<uint8_t> ReadFile(const char* path) {
  std::vector<uint8_t> bytes;
  std::FILE* const file = std::fopen(path, "rb");
  Check(file != nullptr, path);
  for (int byte = std::fgetc(file); byte != EOF; byte = std::fgetc(file)) {
    bytes.push_back(static_cast<uint8_t>(byte));
  }
  std::fclose(file);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  atollrt::ModelBuilder tiny;
  tiny.Output(tiny.FullyConnected(tiny.Input({1, 16}), 8));
  atollrt::ModelBuilder deep;
  int32_t x = deep.Input({1, 8, 8, 16});
  for (int i = 0; i < 500; ++i) x = deep.Relu(deep.Conv2D(x, {.channels = 16}));
  deep.Output(x);
  for (const char* const device : {"cpu", "emu"}) {
    if (argc < 2) {
      Comparison("1 operator", tiny.Build(), device).Print();
      Comparison("1,000 operators", deep.Build(), device).Print();
      Comparison("the bundled model",
                 ReadFile(ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite"), device)
          .Print();
    }
    for (int i = 1; i < argc; ++i) Comparison(argv[i], ReadFile(argv[i]), device).Print();
  }
  return 0;
}
