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
#include <numeric>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/picture.h"
#include "atoll/runtime.h"

namespace {

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "classify_image: %s\n", message.c_str());
  std::exit(1);
}

void Require(AtollStatus status) {
  if (status != ATOLL_OK) Fail(AtollLastError());
}

// An 8-bit value of a tensor, whatever its sign; also for the offset between the two.
bool IsSigned(const AtollTensor* tensor) {
  const AtollType type = AtollTensorType(tensor);
  if (type != ATOLL_INT8 && type != ATOLL_UINT8) {
    Fail("the model's " + std::string(AtollTensorName(tensor)) + " is " + AtollTypeName(type) +
         ", not int8 or uint8");
  }
  return type == ATOLL_INT8;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: %s MODEL IMAGE LABELS [DEVICE]\n", argv[0]);
    return 2;
  }
  // The device: the first real one, else the emulated one, unless it is named.
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  if (argc == 5) device.device = argv[4];
  AtollDelegate* delegate = nullptr;
  Require(AtollDelegateCreate(&device, &delegate));

  AtollModel* model = nullptr;
  Require(AtollModelCreateFromFile(argv[1], &model));
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = delegate;
  AtollInterpreter* interpreter = nullptr;
  Require(AtollInterpreterCreate(model, &options, &interpreter));
  AtollModelDelete(model);  // the interpreter keeps what it needs

  // The picture, resized to the input [1, height, width, channels]; an int8 input wants p - 128.
  AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  if (AtollTensorNumDims(input) != 4) Fail("the model's input is no picture");
  const int channels = AtollTensorDim(input, 3);
  const auto image = atollrt::ReadImageFile(argv[2], {.channels = channels});
  if (!image.ok()) Fail(image.status().message());
  auto resized = atollrt::Resize(*image, AtollTensorDim(input, 2), AtollTensorDim(input, 1));
  if (!resized.ok()) Fail(resized.status().message());
  if (IsSigned(input)) {
    for (uint8_t& pixel : resized->pixels) pixel ^= 0x80;  // minus 128, modulo 256
  }
  Require(AtollTensorCopyFromBuffer(input, resized->pixels.data(), resized->pixels.size()));

  Require(AtollInterpreterInvoke(interpreter));

  // Scores stay in order when they become real numbers, so the stored ones can be sorted.
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  const AtollQuantization q = AtollTensorQuantization(output);
  const bool is_signed = IsSigned(output);
  std::vector<uint8_t> bytes(AtollTensorByteSize(output));
  Require(AtollTensorCopyToBuffer(output, bytes.data(), bytes.size()));
  const auto score = [&](size_t i) {
    const int stored = is_signed ? static_cast<int8_t>(bytes[i]) : bytes[i];
    return static_cast<double>(q.scale) * (stored - q.zero_point);
  };
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score(a) > score(b); });

  std::vector<std::string> labels;
  std::ifstream file(argv[3]);
  if (!file) Fail(std::string(argv[3]) + " cannot be read");
  for (std::string line; std::getline(file, line);) labels.push_back(line);
  for (size_t i = 0; i < std::min<size_t>(5, order.size()); ++i) {
    const size_t c = order[i];
    std::printf("%.4f  %s\n", score(c), c < labels.size() ? labels[c].c_str() : "?");
  }
  AtollInterpreterDelete(interpreter);
  AtollDelegateDelete(delegate);
}
