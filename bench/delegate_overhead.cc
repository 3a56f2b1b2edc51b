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

// On the device "emu" or "cpu".
void Measure(const char* name, const std::vector<uint8_t>& file, const char* device) {
  auto model = atollrt::Model::FromBuffer(file);
  Check(model.ok(), name);
  AtollModel* direct_model = nullptr;
  AtollDelegate* direct_device = nullptr;
  AtollDelegateOptions device_options = ATOLL_DELEGATE_OPTIONS_INIT;
  device_options.device = device;
  device_options.num_threads = 1;
  Check(ATOLL(AtollDelegateCreate)(&device_options, &direct_device) == ATOLL_OK, device);
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = 1;
  options.delegate = direct_device;
  const Plugin::DelegatePtr delegate =
      Plugin::Get().Make({{"device", device}, {"num_threads", "1"}});
  const auto& layout = atollrt::TfliteLayouts().back();

  double shortest_creation = 1e9;
  double shortest_taking = 1e9;
  for (int turn = 0; turn < 5; ++turn) {
    AtollInterpreter* created = nullptr;
    shortest_creation = std::min(
        shortest_creation, Microseconds([&] {
          Check(ATOLL(AtollModelCreateFromBuffer)(file.data(), file.size(), &direct_model) ==
                    ATOLL_OK,
                name);
          Check(ATOLL(AtollInterpreterCreate)(direct_model, &options, &created) == ATOLL_OK, name);
        }));
    ATOLL(AtollInterpreterDelete)(created);
    ATOLL(AtollModelDelete)(direct_model);
    MadeUpTflite runtime(*model, layout, 1);
    runtime.shakes = false;
    shortest_taking = std::min(shortest_taking, Microseconds([&] {
                                 Check(runtime.ModifyGraph(delegate.get()) == kTfLiteOk,
                                       runtime.errors().c_str());
                               }));
  }

  MadeUpTflite runtime(*model, layout, 1);
  Check(runtime.ModifyGraph(delegate.get()) == kTfLiteOk && runtime.AllocateTensors() == kTfLiteOk,
        runtime.errors().c_str());
  AtollInterpreter* direct = nullptr;
  Check(ATOLL(AtollModelCreateFromBuffer)(file.data(), file.size(), &direct_model) == ATOLL_OK,
        name);
  Check(ATOLL(AtollInterpreterCreate)(direct_model, &options, &direct) == ATOLL_OK, name);
  for (size_t i = 0; i < runtime.input_count(); ++i) {
    const std::span<uint8_t> bytes = runtime.Input(i);
    atollrt::FillFromSeed(1, runtime.graph().tensors[runtime.graph().inputs[i]].type, bytes);
    AtollTensor* const input =
        ATOLL(AtollInterpreterGetInputTensor)(direct, static_cast<int32_t>(i));
    ATOLL(AtollTensorCopyFromBuffer)(input, bytes.data(), bytes.size());
  }
  auto* const invoke = ATOLL(AtollInterpreterInvoke);
  double shortest_direct = 1e9;
  double shortest = 1e9;
  double shortest_moving = 1e9;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (int turn = 0; turn < 20000 && std::chrono::steady_clock::now() < end; ++turn) {
    shortest_direct =
        std::min(shortest_direct, Microseconds([&] { Check(invoke(direct) == ATOLL_OK, name); }));
    shortest = std::min(shortest, Microseconds([&] {
                          Check(runtime.Invoke() == kTfLiteOk, runtime.errors().c_str());
                        }));
    // Another place for each input, as of a program that passes its own buffers.
    std::vector<void*> places;
    for (const int32_t input : runtime.graph().inputs) {
      TfLiteTensor& tensor = runtime.tensor(input);
      places.push_back(tensor.data.data);
      tensor.data.data = std::aligned_alloc(64, (tensor.bytes + 63) / 64 * 64);
      std::copy_n(static_cast<char*>(places.back()), tensor.bytes, tensor.data.raw);
    }
    shortest_moving = std::min(shortest_moving, Microseconds([&] {
                                 Check(runtime.Invoke() == kTfLiteOk, runtime.errors().c_str());
                               }));
    for (size_t i = 0; i < places.size(); ++i) {
      TfLiteTensor& tensor = runtime.tensor(runtime.graph().inputs[i]);
      std::free(tensor.data.data);
      tensor.data.data = places[i];
    }
  }
  std::printf(
      "%s on %s, %zu of %zu operators in %zu partitions\n"
      "  invoke: direct %.2f us, delegate %.2f us: %+.2f us (%.3f); inputs moved %+.2f us\n"
      "  create: direct %.2f ms, delegate %.2f ms (%.2f)\n",
      name, device, runtime.claimed(), runtime.graph().nodes.size(), runtime.partitions().size(),
      shortest_direct, shortest, shortest - shortest_direct, shortest / shortest_direct,
      shortest_moving - shortest_direct, shortest_creation / 1e3, shortest_taking / 1e3,
      shortest_taking / shortest_creation);
  ATOLL(AtollInterpreterDelete)(direct);
  ATOLL(AtollModelDelete)(direct_model);
  ATOLL(AtollDelegateDelete)(direct_device);
}

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
      Measure("1 operator", tiny.Build(), device);
      Measure("1,000 operators", deep.Build(), device);
      Measure("the bundled model", ReadFile(ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite"),
              device);
    }
    for (int i = 1; i < argc; ++i) Measure(argv[i], ReadFile(argv[i]), device);
  }
  return 0;
}
