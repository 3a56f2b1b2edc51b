// SPDX-License-Identifier: Apache-2.0
//
// usage: classify_image MODEL IMAGE LABELS [DEVICE]
//
// Says what a picture shows: the five best classes of a quantized classifier. It takes nothing but
// the C interface and, for the picture, the picture library.
//
//   classify_image models/fashion/fashion_int8.tflite models/fashion/ankle_boot.pgm
//                  models/fashion/labels.txt
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/picture.h"
#include "atoll/runtime.h"

namespace {

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

void Require(AtollStatus status) {
  if (status != ATOLL_OK) Fail(AtollLastError());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: %s MODEL IMAGE LABELS [DEVICE]\n", argv[0]);
    return 2;
  }
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  if (argc == 5) device.device = argv[4];  // else a broker, a real one, the emulated one
  AtollDelegate* delegate = nullptr;
  Require(AtollDelegateCreate(&device, &delegate));
  AtollModel* model = nullptr;
  Require(AtollModelCreateFromFile(argv[1], &model));
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = delegate;
  AtollInterpreter* interpreter = nullptr;
  Require(AtollInterpreterCreate(model, &options, &interpreter));
  AtollModelDelete(model);  // the interpreter keeps what it needs

  AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  const auto is_8_bit = [](const AtollTensor* tensor) {
    return AtollTensorType(tensor) == ATOLL_INT8 || AtollTensorType(tensor) == ATOLL_UINT8;
  };
  if (AtollInterpreterGetInputTensorCount(interpreter) != 1 || AtollTensorNumDims(input) != 4 ||
      !is_8_bit(input) || !is_8_bit(output)) {
    Fail(std::string(argv[1]) + " is no int8 or uint8 model for pictures");
  }

  // The picture, resized to the input [1, height, width, channels]; int8 stands for p - 128.
  const auto picture = atollrt::ReadImageFile(argv[2], {.channels = AtollTensorDim(input, 3)});
  if (!picture.ok()) Fail(picture.status().message());
  auto resized = atollrt::Resize(*picture, AtollTensorDim(input, 2), AtollTensorDim(input, 1));
  if (!resized.ok()) Fail(resized.status().message());
  if (AtollTensorType(input) == ATOLL_INT8) {
    for (uint8_t& pixel : resized->pixels) pixel = static_cast<uint8_t>(pixel - 128);
  }
  Require(AtollTensorCopyFromBuffer(input, resized->pixels.data(), resized->pixels.size()));

  Require(AtollInterpreterInvoke(interpreter));

  // Scores as real numbers, the best first.
  const AtollQuantization q = AtollTensorQuantization(output);
  const auto* stored = static_cast<const uint8_t*>(AtollTensorConstData(output));
  std::vector<std::pair<double, size_t>> scores;
  for (size_t c = 0; c < AtollTensorByteSize(output); ++c) {
    const int value =
        AtollTensorType(output) == ATOLL_INT8 ? static_cast<int8_t>(stored[c]) : stored[c];
    scores.emplace_back(static_cast<double>(q.scale) * (value - q.zero_point), c);
  }
  std::ranges::stable_sort(scores, [](auto& a, auto& b) { return a.first > b.first; });

  std::ifstream file(argv[3]);
  if (!file) Fail(std::string(argv[3]) + " cannot be read");
  std::vector<std::string> labels;
  for (std::string line; std::getline(file, line);) labels.push_back(line);
  if (labels.size() != scores.size()) {
    Fail(std::string(argv[3]) + " has " + std::to_string(labels.size()) + " labels, the model " +
         std::to_string(scores.size()) + " classes");
  }
  if (scores.size() > 5) scores.resize(5);
  for (const auto& [score, c] : scores) {
    std::printf("%.4f  %s\n", score, labels[c].c_str());
  }
  AtollInterpreterDelete(interpreter);
  AtollDelegateDelete(delegate);
}
