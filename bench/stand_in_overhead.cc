// SPDX-License-Identifier: Apache-2.0
//
// What TensorFlow Lite's C interface costs over Atoll's own, per invocation: the same model runs
// behind both in turns, on one thread; the shortest of each counts. The model is the bundled one,
// or that of the first argument.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "atoll/runtime.h"
#include "compat/tensorflowlite_c/c_api.h"

namespace {

template <typename Function>
double Microseconds(const Function& function) {
  const auto before = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  const char* const path =
      argc > 1 ? argv[1] : ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite";
  AtollModel* model = nullptr;
  AtollInterpreter* direct = nullptr;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = 1;
  TfLiteModel* const tflite_model = TfLiteModelCreateFromFile(path);
  TfLiteInterpreterOptions* const tflite_options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsSetNumThreads(tflite_options, 1);
  TfLiteInterpreter* const stand_in = TfLiteInterpreterCreate(tflite_model, tflite_options);
  if (AtollModelCreateFromFile(path, &model) != ATOLL_OK ||
      AtollInterpreterCreate(model, &options, &direct) != ATOLL_OK || stand_in == nullptr ||
      TfLiteInterpreterAllocateTensors(stand_in) != kTfLiteOk) {
    std::fprintf(stderr, "%s: %s\n", path, AtollLastError());
    return 1;
  }
  double shortest_direct = 1e9;
  double shortest_stand_in = 1e9;
  for (int turn = 0; turn < 20000; ++turn) {
    shortest_direct =
        std::min(shortest_direct, Microseconds([&] { AtollInterpreterInvoke(direct); }));
    shortest_stand_in =
        std::min(shortest_stand_in, Microseconds([&] { TfLiteInterpreterInvoke(stand_in); }));
  }
  std::printf(
      "AtollInterpreterInvoke %.2f us, TfLiteInterpreterInvoke %.2f us: %.2f us more (%.3f)\n",
      shortest_direct, shortest_stand_in, shortest_stand_in - shortest_direct,
      shortest_stand_in / shortest_direct);
  TfLiteInterpreterDelete(stand_in);
  TfLiteInterpreterOptionsDelete(tflite_options);
  TfLiteModelDelete(tflite_model);
  AtollInterpreterDelete(direct);
  AtollModelDelete(model);
  return 0;
}
